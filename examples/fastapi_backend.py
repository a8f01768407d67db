"""A FastAPI backend that has pictures made: it enqueues, polls, aborts, and hears of the end by a signed webhook.

    pip install safelight fastapi uvicorn standardwebhooks
    export SAFELIGHT_REDIS_URL=… SAFELIGHT_WEBHOOK_SECRET=whsec_… BACKEND_URL=https://backend.example.com
    uvicorn examples.fastapi_backend:app --port 9000

The worker has the same SAFELIGHT_WEBHOOK_SECRET. BACKEND_URL is this program as the worker reaches it; on one machine
the worker needs SAFELIGHT_ALLOW_PRIVATE_URLS=true for that.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from standardwebhooks import Webhook, WebhookVerificationError

from tasks import AsyncClient
from tasks.errors import InvalidRequest, QueueFull, StoreUnavailable, UnknownJob

#: What a database would hold: the jobs that we were told about, and the messages that told us.
finished: dict[str, str] = {}
messages: set[str] = set()


class Wish(BaseModel):
    prompt: str
    seed: int | None = None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient() as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(UnknownJob)
@app.exception_handler(InvalidRequest)
@app.exception_handler(QueueFull)
@app.exception_handler(StoreUnavailable)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    status = {UnknownJob: 404, InvalidRequest: 422, QueueFull: 429}.get(type(error), 503)
    return JSONResponse({"detail": str(error)}, status)


@app.post("/pictures", status_code=202)
async def enqueue(wish: Wish, request: Request) -> dict[str, Any]:
    """Sending the same again with the same key gives the same job: safe to repeat after a lost answer."""
    job = await request.app.state.client.submit(
        prompt=wish.prompt,
        seed=wish.seed,
        webhook_url=os.environ["BACKEND_URL"] + "/hooks/safelight",
        idempotency_key=request.headers.get("Idempotency-Key"),
    )
    return {"id": job.id, "status": job.status}


@app.get("/pictures/{job_id}")
async def poll(job_id: str, request: Request) -> dict[str, Any]:
    client: AsyncClient = request.app.state.client
    job = await client.get(job_id)
    urls = await client.result_urls(job_id)
    return {"status": job.status, "fraction": job.progress.fraction, "urls": urls, "told": finished.get(job_id)}


@app.post("/pictures/{job_id}/abort", status_code=202)
async def abort(job_id: str, request: Request) -> dict[str, Any]:
    job = await request.app.state.client.abort(job_id)
    return {"status": job.status}


@app.post("/hooks/safelight", status_code=204)
async def hook(request: Request) -> None:
    """A message may come twice, with the same `webhook-id`; one that we did not sign is nobody's business."""
    try:
        secret = os.environ["SAFELIGHT_WEBHOOK_SECRET"]
        message = Webhook(secret).verify(await request.body(), dict(request.headers))
    except WebhookVerificationError:
        raise HTTPException(401, "not signed by our worker") from None
    if request.headers["webhook-id"] not in messages:
        messages.add(request.headers["webhook-id"])
        finished[message["data"]["id"]] = message["type"]
