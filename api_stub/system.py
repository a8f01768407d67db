"""Routes about the system: what it serves, who works, what waits, and whether all is well."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from api_stub.auth import require_token
from api_stub.backend import Backend, backend_of
from api_stub.metrics import CONTENT_TYPE, Metrics
from api_stub.openapi import ModelList, OpenAIModel, QueueList, WorkerList, problems
from api_stub.problems import ProblemError
from tasks.async_redis_store import AsyncRedisJobStore
from tasks.errors import SafelightError
from tasks.models import FORMATS, ModelSpec
from tasks.quotas import standings
from tasks.release import release
from tasks.store import by_tenant

CHECK_S = 3.0
router = APIRouter(prefix="/v1", tags=["system"])
probes = APIRouter(tags=["operations"])
Uses = Annotated[Backend, Depends(backend_of)]


def public_model(spec: ModelSpec) -> dict[str, Any]:
    """What a producer may know of a model; where its weights lie is not part of that."""
    shown = {
        "name",
        "modality",
        "mode",
        "max_batch_rows",
        "image_input",
        "mask_input",
        "noise_schedulers",
        "defaults",
        "limits",
        "sizes",
        "max_loras",
    }
    return spec.model_dump(mode="json", include=shown) | {
        "loras": list(spec.loras),
        "output_formats": list(FORMATS[spec.modality]),
    }


@router.get("/models", response_model=ModelList)
async def models(backend: Uses) -> Response:
    """The served models with their defaults and limits; `data` has their names as OpenAI's clients read them."""
    served = [public_model(spec) for spec in backend.models]
    known = [OpenAIModel(id=spec.name).model_dump() for spec in backend.models]
    default, max_bytes = backend.models.default.name, backend.settings.max_body_bytes
    answer = {"models": served, "default": default, "max_body_bytes": max_bytes, "object": "list", "data": known}
    return JSONResponse(answer)


@router.get("/models/{name}", response_model=OpenAIModel, responses=problems(404))
async def model(name: str, backend: Uses) -> Response:
    """One served model, as OpenAI's clients read it; ours are all in the list."""
    if backend.models.get(name) is None:
        raise ProblemError(404, "not_found", f"model {name[:128]!r} is not served here")
    return JSONResponse(OpenAIModel(id=name).model_dump())


@router.get("/workers", response_model=WorkerList, responses=problems(503))
async def workers(backend: Uses) -> Response:
    """What each live worker says of itself."""
    return JSONResponse({"workers": [dict(worker) for worker in await backend.client.store.workers()]})


@router.get("/queues", response_model=QueueList, responses=problems(503))
async def queues(backend: Uses) -> Response:
    """Queued and running jobs of each model, the age of the oldest that waits, and each tenant's rows and limits."""
    store = backend.client.store
    stats, tenants = await store.queues(backend.models.names), await store.tenants()
    told = standings(by_tenant(tenants), store.quotas)
    return JSONResponse({"queues": [asdict(queue) for queue in stats], "tenants": told})


@probes.get("/healthz")
async def healthz() -> dict[str, str]:
    """This process answers, and which release it is. Says nothing of what is behind it."""
    return {"status": "alive", "version": release()}


@probes.get("/readyz", responses={503: {"description": "`checks` says which service is away, and what to try."}})
async def readyz(backend: Uses) -> Response:
    """Redis answers, and links to the object store can be signed."""
    checks = {"redis": await _check_redis(backend), "s3": await asyncio.to_thread(_check_s3, backend)}
    is_ready = all(state == "ok" for state in checks.values())
    return JSONResponse({"ready": is_ready, "checks": checks}, 200 if is_ready else 503)


async def _check_redis(backend: Backend) -> str:
    try:
        async with asyncio.timeout(CHECK_S):
            await backend.client.store.queues(backend.models.names)
    except SafelightError as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {CHECK_S:.0f} s"
    return "ok"


def _check_s3(backend: Backend) -> str:
    try:
        backend.artifacts.presign(f"s3://{backend.settings.s3_bucket}/readiness", 60)
    except SafelightError as error:
        return str(error)
    return "ok"


async def _configured(store: AsyncRedisJobStore) -> Sequence[Mapping[str, Any]]:
    """Standings of those tenants that the file names: a label has few values."""
    if not (named := store.quotas.tenants):
        return ()
    return [one for one in standings(by_tenant(await store.tenants()), store.quotas) if one["tenant"] in named]


@probes.get(
    "/metrics", response_class=PlainTextResponse, dependencies=[Depends(require_token)], responses=problems(401)
)
async def metrics(request: Request, backend: Uses) -> Response:
    """Prometheus text. Without Redis, `safelight_store_up` is 0 and what it knows is left out."""
    figures: Metrics = request.app.state.metrics
    store = backend.client.store
    try:
        async with asyncio.timeout(CHECK_S):
            figures.set_store(
                await store.queues(backend.models.names),
                await store.totals(),
                await store.workers(),
                await _configured(store),
            )
    except (SafelightError, TimeoutError):
        figures.set_store_down()
    return Response(figures.text(), headers={"Content-Type": CONTENT_TYPE})
