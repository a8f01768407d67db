"""The way in that each system's documentation names, as one call: a request goes in, the bytes of a PNG come out."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import uuid
from typing import Any, Protocol

import httpx
import redis.asyncio
from celery import Celery

from bench.peers.systems import CELERY, Running
from bench.peers.trace import Wanted
from tasks.async_client import AsyncClient

PATIENCE_S = 900.0


class Door(Protocol):
    """For one event loop. `abort` is the peer's own way to say that a request is not wanted any more."""

    #: how `abort` does it, in words
    how: str

    async def render(self, wanted: Wanted) -> bytes: ...

    async def abort(self, request_id: str) -> None: ...

    async def close(self) -> None: ...


def open_door(system: Running) -> Door:
    if system.name == "safelight":
        return SafelightDoor(system)
    return CeleryDoor(system) if system.name in CELERY else HttpDoor(system)


class HttpDoor:
    """A POST that lasts until the picture is there. All that these peers offer for an abort is to hang up."""

    how = "the client closes its connection"

    def __init__(self, system: Running) -> None:
        self._url = system.address
        self._takes_lists = system.name == "bentoml"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(limits=limits, timeout=PATIENCE_S)
        self._calls: dict[str, asyncio.Task[httpx.Response]] = {}

    async def render(self, wanted: Wanted) -> bytes:
        request: Any = wanted.as_request()
        body = {"requests": [request]} if self._takes_lists else request
        call = self._calls[wanted.id] = asyncio.create_task(self._client.post(self._url, json=body))
        try:
            answer = (await call).raise_for_status().json()
        finally:
            del self._calls[wanted.id]
        return base64.b64decode(answer[0] if self._takes_lists else answer["png"])

    async def abort(self, request_id: str) -> None:
        self._calls[request_id].cancel()

    async def close(self) -> None:
        await self._client.aclose()


class CeleryDoor:
    """`send_task`, and the result from the channel that Celery's Redis backend publishes it on."""

    how = "`control.revoke(id, terminate=True)`"

    def __init__(self, system: Running) -> None:
        self._app = Celery(broker=system.address, backend=system.address, set_as_current=False)
        self._redis = redis.asyncio.Redis.from_url(system.address)
        self._ended: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._task_ids: dict[str, str] = {}
        self._listener: asyncio.Task[None] | None = None

    async def render(self, wanted: Wanted) -> bytes:
        if self._listener is None:
            channels = self._redis.pubsub(ignore_subscribe_messages=True)
            await channels.psubscribe("celery-task-meta-*")
            self._listener = asyncio.create_task(self._listen(channels))
        task_id = self._task_ids[wanted.id] = uuid.uuid4().hex
        ended = self._ended[task_id] = asyncio.get_running_loop().create_future()
        self._app.send_task("render", args=(wanted.as_request(),), task_id=task_id)
        async with asyncio.timeout(PATIENCE_S):
            end = await ended
        if end["status"] != "SUCCESS":
            raise RuntimeError(f"{end['status']}: {end['result']}")
        return base64.b64decode(end["result"])

    async def _listen(self, channels: Any) -> None:
        with contextlib.suppress(redis.exceptions.ConnectionError):  # the server of this round has ended
            async for message in channels.listen():
                end = json.loads(message["data"])
                future = self._ended.pop(end["task_id"], None)
                if future is not None and not future.done():
                    future.set_result(end)

    async def abort(self, request_id: str) -> None:
        self._app.control.revoke(self._task_ids[request_id], terminate=True)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        await self._redis.aclose()
        self._app.close()


class SafelightDoor:
    """`tasks.AsyncClient`, and a GET of the presigned URL."""

    how = "`abort(id)`"

    def __init__(self, system: Running) -> None:
        assert system.settings is not None
        self.client = AsyncClient(system.settings)
        self._http = httpx.AsyncClient()
        self.job_ids: dict[str, str] = {}

    async def render(self, wanted: Wanted) -> bytes:
        job = await self.client.submit(self.request(wanted))
        self.job_ids[wanted.id] = job.id
        ended = await self.client.wait(job.id, PATIENCE_S)
        if ended.status != "succeeded":
            raise RuntimeError(f"{ended.status}: {ended.error}")
        [url] = await self.client.result_urls(job.id)
        return (await self._http.get(url)).raise_for_status().content

    @staticmethod
    def request(wanted: Wanted) -> dict[str, Any]:
        return {
            "prompt": wanted.prompt,
            "height": wanted.size,
            "width": wanted.size,
            "num_inference_steps": wanted.steps,
            "guidance_scale": wanted.guidance,
            "seed": wanted.seed,
        }

    async def abort(self, request_id: str) -> None:
        await self.client.abort(self.job_ids[request_id])

    async def close(self) -> None:
        await self.client.close()
        await self._http.aclose()
