"""In the manner of the server example of diffusers: a view of the shared pipeline for each request, in an executor.

The example's executor has many threads and its device is a GPU. Here it has one: two of them would compute on both
cores, which no other system of the bench may.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from diffusers import StableDiffusionPipeline
from fastapi import Body, FastAPI

from bench.peers.model import Model

app = FastAPI()
model = Model()
device = ThreadPoolExecutor(1)


@app.post("/render")
async def render(request: dict[str, Any] = Body()) -> dict[str, str]:  # noqa: B008 # FastAPI's own form
    [picture] = await asyncio.get_running_loop().run_in_executor(device, alone, request)
    return {"png": base64.b64encode(picture).decode()}


def alone(request: dict[str, Any]) -> list[bytes]:
    shared = model.pipeline
    scheduler = shared.scheduler.from_config(shared.scheduler.config)
    view = StableDiffusionPipeline.from_pipe(shared, scheduler=scheduler)
    view.set_progress_bar_config(disable=True)
    return model.call(view, [request])


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
