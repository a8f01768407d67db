"""Headers that no answer may lack, whichever route made it, and who from other origins may call."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_stub.problems import ANSWER_HEADERS
from tasks.settings import Settings

_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID")
_PREFLIGHT_S = 600


class AnswerHeaders:
    """ASGI middleware: adds what an answer does not say itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, complete if scope["type"] == "http" else send)


def allow_origins(app: FastAPI, settings: Settings) -> None:
    """Pages of the listed origins may call. Cookies are never part of that: there are none."""
    origins = [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=list(_HEADERS),
            expose_headers=["Location", "Retry-After"],
            max_age=_PREFLIGHT_S,
        )
