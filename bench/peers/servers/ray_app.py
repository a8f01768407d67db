"""Ray Serve with `@serve.batch`: one replica; batches run on a thread, so that it goes on collecting meanwhile."""

from __future__ import annotations

import asyncio
import base64
import signal
import sys
import threading
from typing import Any

import ray
from ray import serve
from starlette.requests import Request as HttpRequest

from bench.peers.model import MAX_ROWS, Model, Request

BATCH_WAIT_S = 0.02


@serve.deployment(num_replicas=1, max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 1})
class Pictures:
    def __init__(self) -> None:
        self.model = Model()

    @serve.batch(max_batch_size=MAX_ROWS, batch_wait_timeout_s=BATCH_WAIT_S)  # type: ignore[untyped-decorator]
    async def render(self, batch: list[Request]) -> list[bytes]:
        return await asyncio.to_thread(self.model.render, batch)

    async def __call__(self, http: HttpRequest) -> dict[str, str]:
        picture: Any = await self.render(await http.json())
        return {"png": base64.b64encode(picture).decode()}


def start(attempts: int = 3) -> None:
    """Ray gives its node half a minute, which a busy machine does not always make."""
    for left in reversed(range(attempts)):
        try:
            ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
            return
        except Exception:
            ray.shutdown()
            if not left:
                raise


def main() -> None:
    stopped = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stopped.set())
    start()
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Pictures.bind(), route_prefix="/render")
    stopped.wait()
    ray.shutdown()


if __name__ == "__main__":
    main()
