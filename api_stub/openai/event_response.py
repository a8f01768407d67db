"""A stream of server-sent events that is told to its end even when its reader has left, so that it can tidy up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from fastapi import Response
from starlette.types import Receive, Scope, Send


class EventResponse(Response):
    """Starlette's own is cancelled at a disconnect; here the frames notice it themselves and end."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[str], headers: Mapping[str, str]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})
        del self.headers["content-length"]
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(OSError):  # the reader has left
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for frame in self._frames:
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": frame.encode(), "more_body": True})
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
