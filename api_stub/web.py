"""The page at `/` and its files, with headers that let nothing else in."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from tasks.settings import Settings

PAGE = Path(__file__).parent / "page"


def page_headers(settings: Settings) -> dict[str, str]:
    """Scripts and styles of our own only; pictures also from where presigned URLs point."""
    media = " ".join(["'self'", "data:", "blob:", *_media_origins(settings)])
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": media,
        "media-src": media,
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }


def _media_origins(settings: Settings) -> list[str]:
    endpoint = settings.s3_public_endpoint_url or settings.s3_endpoint_url
    if endpoint is None:  # AWS itself, path or virtual-host style
        return ["https://*.amazonaws.com"]
    origin = re.match(r"https?://[A-Za-z0-9.:\[\]_-]+", endpoint)
    return [origin.group()] if origin else []


class PageFiles(StaticFiles):
    """The files of the page; each answer carries the page's headers."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(directory=PAGE)
        self._headers = headers

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(self._headers)
        return response


async def index(request: Request) -> Response:
    return FileResponse(PAGE / "index.html", headers=request.app.state.page_headers)
