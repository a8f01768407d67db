"""Headers that no answer may lack, whichever route made it, and who from other origins may call."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_stub.problems import ANSWER_HEADERS
from tasks.settings import Settings

#: Where the files of `/docs` come from; a fixed version.
_SWAGGER = "https://cdn.jsdelivr.net/npm/swagger-ui-dist@5.17.14"
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


async def docs(request: Request) -> Response:
    """`/docs`: Swagger UI over our schema, and a policy under which nothing else runs or is called."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="Safelight",
        swagger_js_url=f"{_SWAGGER}/swagger-ui-bundle.js",
        swagger_css_url=f"{_SWAGGER}/swagger-ui.css",
        swagger_favicon_url=f"{root}/page/favicon.svg",
    )
    text = bytes(page.body).decode()
    return HTMLResponse(text, headers={"Content-Security-Policy": _docs_policy(text)})


def _docs_policy(text: str) -> str:
    inline = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in inline]
    policy = {
        "default-src": "'none'",
        "script-src": " ".join([f"{_SWAGGER}/", *digests]),
        "style-src": f"{_SWAGGER}/ 'unsafe-inline'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in policy.items())
