"""A Flask backend that has pictures made: it enqueues, polls, aborts, and hears of the end by a signed webhook.

    pip install safelight flask standardwebhooks
    export SAFELIGHT_REDIS_URL=… SAFELIGHT_WEBHOOK_SECRET=whsec_… BACKEND_URL=https://backend.example.com
    flask --app examples.flask_backend run --port 9000

The worker has the same SAFELIGHT_WEBHOOK_SECRET. BACKEND_URL is this program as the worker reaches it; on one machine
the worker needs SAFELIGHT_ALLOW_PRIVATE_URLS=true for that.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, request
from standardwebhooks import Webhook, WebhookVerificationError

from tasks import Client
from tasks.errors import InvalidRequest, QueueFull, SafelightError, UnknownJob

Answer = tuple[dict[str, Any], int]


def create_app() -> Flask:
    app = Flask(__name__)
    # One client for all threads of the process: it holds a pool of connections.
    client = Client()
    # What a database would hold: the jobs that we were told about, and the messages that told us.
    finished: dict[str, str] = {}
    messages: set[str] = set()

    @app.errorhandler(SafelightError)
    def refuse(error: SafelightError) -> Answer:
        status = {UnknownJob: 404, InvalidRequest: 422, QueueFull: 429}.get(type(error), 503)
        return {"detail": str(error)}, status

    @app.post("/pictures")
    def enqueue() -> Answer:
        """Sending the same again with the same key gives the same job: safe to repeat after a lost answer."""
        wish = request.get_json()
        job = client.submit(
            prompt=wish.get("prompt", ""),
            seed=wish.get("seed"),
            webhook_url=os.environ["BACKEND_URL"] + "/hooks/safelight",
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return {"id": job.id, "status": job.status}, 202

    @app.get("/pictures/<job_id>")
    def poll(job_id: str) -> Answer:
        job, urls = client.get(job_id), client.result_urls(job_id)
        told = finished.get(job_id)
        return {"status": job.status, "fraction": job.progress.fraction, "urls": urls, "told": told}, 200

    @app.post("/pictures/<job_id>/abort")
    def abort(job_id: str) -> Answer:
        return {"status": client.abort(job_id).status}, 202

    @app.post("/hooks/safelight")
    def hook() -> Answer:
        """A message may come twice, with the same `webhook-id`; one that we did not sign is nobody's business."""
        try:
            secret = os.environ["SAFELIGHT_WEBHOOK_SECRET"]
            message = Webhook(secret).verify(request.get_data(), dict(request.headers))
        except WebhookVerificationError:
            return {"detail": "not signed by our worker"}, 401
        if request.headers["webhook-id"] not in messages:
            messages.add(request.headers["webhook-id"])
            finished[message["data"]["id"]] = message["type"]
        return {}, 204

    return app
