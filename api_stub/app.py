"""Builds the app: routes, errors, metrics, the page. Nothing connects before the lifespan does."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi

from api_stub import answers, docs, groups, jobs, many_events, openapi, operator, problems, system, web
from api_stub.auth import Keys, require_token
from api_stub.backend import connect
from api_stub.metrics import CountRequests, Metrics
from api_stub.openai import routes as openai
from api_stub.trace_requests import TraceRequests
from tasks.settings import Settings
from tasks.tracing import NO_TRACING, Tracing

TITLE = "Safelight"
VERSION = "1"
DESCRIPTION = "Generation jobs: submit, watch, abort, fetch. Errors are RFC 9457 problems that name the wrong field."


def create_app(settings: Settings, tracing: Tracing = NO_TRACING) -> FastAPI:
    """The whole API over these settings. It starts without Redis too: `/readyz` and 503 say so then."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with connect(settings, tracing) as backend:
            app.state.backend = backend
            yield

    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,  # it would send callers, and their keys, to whatever host their Host header names
        separate_input_output_schemas=False,
    )
    app.state.closing = threading.Event()
    app.state.keys = Keys(settings.api_keys)
    app.state.metrics = Metrics()
    app.state.page_headers = web.page_headers(settings)
    problems.install(app, openai.render)
    openai.install(app)
    guarded = [Depends(require_token)]
    app.include_router(groups.router, dependencies=guarded, responses=openapi.problems(401))
    app.include_router(jobs.router, dependencies=guarded, responses=openapi.problems(401))
    app.include_router(many_events.router, dependencies=guarded, responses=openapi.problems(401))
    app.include_router(system.router, dependencies=guarded, responses=openapi.problems(401))
    app.include_router(operator.router, dependencies=guarded, responses=openapi.problems(401))
    for router in openai.routers:
        app.include_router(router, dependencies=guarded)
    app.include_router(system.probes)
    docs.install(app)
    app.add_route("/", web.index, methods=["GET"], include_in_schema=False)
    app.mount("/page", web.PageFiles(app.state.page_headers), name="page")
    app.add_middleware(CountRequests, metrics=app.state.metrics)
    app.add_middleware(TraceRequests, tracing=tracing)
    app.add_middleware(answers.AnswerHeaders)
    answers.allow_origins(app, settings)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=TITLE, version=VERSION, description=DESCRIPTION, routes=app.routes)
            app.openapi_schema = openapi.complete(schema)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]
