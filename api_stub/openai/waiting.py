"""Waiting for a job while its caller waits for us: until it ends, the caller leaves, the time is over, or we close."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator

from fastapi import Request

from api_stub.backend import Backend
from api_stub.events import SLICE_S
from api_stub.openai.errors import JOB_ID_HEADER, NO_RETRY, OpenAIError
from tasks.errors import StoreUnavailable
from tasks.job import Job
from tasks.store import Event

_PAUSE_S = 0.5
#: Nobody reads it; the log and the metrics do (as nginx).
CLIENT_CLOSED_REQUEST = 499


class Vigil:
    """One caller and the job that it waits for.

    A caller that leaves takes its job along, unless an idempotency key lets it come back for it: without one nobody
    can, and the client's next try would be another job beside it.
    """

    def __init__(self, request: Request, backend: Backend, job: Job, key: str | None) -> None:
        self._request = request
        self._backend = backend
        self.job = job
        self._can_return = key is not None
        self._closing: threading.Event = request.app.state.closing

    async def events(self) -> AsyncIterator[Event]:
        """The job's events until it has ended; `job` is then as it ended. Raises `OpenAIError` for any other end."""
        store = self._backend.client.store
        wait_s = self._backend.settings.sync_wait_s
        deadline, after = time.monotonic() + wait_s, "0"
        gone = asyncio.create_task(self._gone())
        try:
            while not self.job.status.is_terminal:
                await self._check(gone, deadline, wait_s)
                try:
                    block_s = min(SLICE_S, max(0.0, deadline - time.monotonic()))
                    for event in await store.events(self.job.id, after=after, block_s=block_s):
                        after = event.id
                        yield event
                    self.job = await store.get(self.job.id)
                except StoreUnavailable:  # the job is safe in there: ride it out, as every wait of ours does
                    await asyncio.sleep(_PAUSE_S)
        finally:
            gone.cancel()

    async def ended(self) -> Job:
        """The job once it has ended. Raises `OpenAIError`."""
        async for _ in self.events():
            pass
        return self.job

    async def _gone(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    async def _check(self, gone: asyncio.Task[None], deadline: float, wait_s: float) -> None:
        headers = {JOB_ID_HEADER: self.job.id}
        if gone.done():
            await self.leave()
            raise OpenAIError(CLIENT_CLOSED_REQUEST, "client_closed_request", "the caller left", headers=headers)
        if self._closing.is_set():
            await self.leave()
            raise OpenAIError(503, "service_unavailable", "this server is closing; try again", headers=headers)
        if time.monotonic() > deadline:
            message = (
                f"job {self.job.id} is still {self.job.status} after {wait_s:g} s and goes on; "
                f"wait for it with GET /v1/jobs/{self.job.id}?wait=60"
            )
            raise OpenAIError(504, "timeout", message, headers=headers | NO_RETRY)

    async def leave(self) -> None:
        """Abort the job if nobody can come back for it."""
        if not self._can_return:
            with contextlib.suppress(StoreUnavailable):  # it runs to its end then, for nobody
                await self._backend.client.abort(self.job.id)
