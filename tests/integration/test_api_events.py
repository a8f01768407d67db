"""The event stream: live, resumed, silent, late; read as a browser reads it."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from api_stub.backend import connect
from api_stub.events import stream
from api_stub.testing import running_api
from tasks.client import Client
from tasks.job import JobStatus, Progress
from tasks.local.servers import start_redis
from tasks.settings import Settings
from tasks.store import Claimed, Outcome

Event = tuple[str, str, dict[str, Any]]


@pytest.fixture
def api(settings: Settings) -> Iterator[httpx.Client]:
    with running_api(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture
def backend(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


def submit(api: httpx.Client) -> str:
    return str(api.post("/v1/jobs", json={"prompt": "a tree"}).json()["id"])


def parse(text: str) -> list[Event]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


def read(api: httpx.Client, job_id: str, last_id: str | None = None) -> list[Event]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    reply = api.get(f"/v1/jobs/{job_id}/events", headers=headers)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-store"
    return parse(reply.text)


def run(backend: Client, job_id: str, steps: int = 3, pause_s: float = 0.0) -> None:
    claimed = backend.store.claim(job_id, "test", 30)
    assert isinstance(claimed, Claimed)
    for step in range(1, steps + 1):
        time.sleep(pause_s)
        progress = Progress(stage="denoising", step=step, num_steps=steps, fraction=step / steps)
        backend.store.report({(job_id, claimed.attempt): progress})
    backend.store.preview(job_id, claimed.attempt, {"step": 1, "image": "data:image/png;base64,AA=="})
    time.sleep(pause_s)
    backend.store.finish(job_id, claimed.attempt, Outcome(JobStatus.ABORTED))


def test_a_job_is_told_from_its_start_to_done(api: httpx.Client, backend: Client) -> None:
    job_id = submit(api)
    worker = threading.Thread(target=run, args=(backend, job_id, 3, 0.15))
    worker.start()
    events = read(api, job_id)
    worker.join()
    assert [kind for _, kind, _ in events] == [
        *("status", "status"),
        *("progress",) * 3,
        *("preview", "status", "done"),
    ]
    assert [data["step"] for _, kind, data in events if kind == "progress"] == [1, 2, 3]
    assert events[-1][2] == api.get(f"/v1/jobs/{job_id}").json()
    assert all(event_id for event_id, _, _ in events)


def test_events_arrive_while_the_job_runs(api: httpx.Client, backend: Client) -> None:
    job_id = submit(api)
    claimed = backend.store.claim(job_id, "test", 30)
    assert isinstance(claimed, Claimed)
    with api.stream("GET", f"/v1/jobs/{job_id}/events") as reply:
        lines = reply.iter_lines()
        for _ in lines:
            backend.store.report({(job_id, claimed.attempt): Progress(stage="denoising", step=5, num_steps=9)})
            break
        assert any('"step":5' in line for line in lines)


def test_last_event_id_resumes_after_it(api: httpx.Client, backend: Client) -> None:
    job_id = submit(api)
    run(backend, job_id)
    events = read(api, job_id)
    for number, (event_id, _, _) in enumerate(events[:-1]):
        assert read(api, job_id, event_id) == events[number + 1 :]
    after_done = api.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": events[-1][0]})
    assert (after_done.status_code, after_done.content) == (204, b"")


def test_done_comes_even_when_the_events_are_gone(api: httpx.Client, backend: Client, settings: Settings) -> None:
    job_id = submit(api)
    run(backend, job_id)
    with redis.Redis.from_url(settings.redis_url) as client:
        assert client.delete(f"{settings.key_prefix}events:{job_id}") == 1
    (event,) = read(api, job_id)
    assert event[1] == "done"
    assert event[2]["id"] == job_id


def test_unknown_jobs_and_foreign_ids(api: httpx.Client) -> None:
    assert api.get("/v1/jobs/unknown/events").status_code == 404
    job_id = submit(api)
    reply = api.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "$"})
    assert (reply.status_code, reply.json()["field"]) == (422, "Last-Event-ID")


def test_a_stream_outlives_cut_connections_and_its_reader_a_restart(settings: Settings, tmp_path: Path) -> None:
    server = start_redis(tmp_path / "redis")
    own = settings.model_copy(update={"redis_url": server.url})
    try:
        with running_api(own) as url, httpx.Client(base_url=url, timeout=20) as api, Client(own) as backend:
            job_id = submit(api)
            claimed = backend.store.claim(job_id, "test", 60)
            assert isinstance(claimed, Claimed)

            def step(number: int) -> None:
                progress = Progress(stage="denoising", step=number, num_steps=9, fraction=number / 9)
                backend.store.report({(job_id, claimed.attempt): progress})

            with api.stream("GET", f"/v1/jobs/{job_id}/events") as reply:
                blocks = iter_blocks(reply)
                for number in (1, 2, 3):
                    with redis.Redis(port=server.port) as admin:
                        assert admin.client_kill_filter(_type="normal", skipme=True) > 0
                    step(number)
                    seen = next(event for event in blocks if event[1] == "progress")
                    assert seen[2]["step"] == number
                server.process.send(signal.SIGKILL)
                server.process.stop()
                assert list(blocks) == [], "a stream without its Redis ends, and says nothing wrong"
            server = start_redis(tmp_path / "redis", port=server.port)
            step(4)
            backend.store.finish(job_id, claimed.attempt, Outcome(JobStatus.ABORTED))
            rest = read(api, job_id, seen[0])
            assert [kind for _, kind, _ in rest] == ["progress", "status", "done"]
            assert rest[0][2]["step"] == 4
    finally:
        server.process.stop()


def iter_blocks(reply: httpx.Response) -> Iterator[Event]:
    lines: list[str] = []
    for line in reply.iter_lines():
        lines.append(line)
        if not line:
            yield from parse("\n".join(lines) + "\n")
            lines.clear()


def test_a_closing_process_ends_its_streams_and_long_polls(settings: Settings) -> None:
    with httpx.Client(timeout=20) as reader, httpx.Client(timeout=60) as poller:
        with running_api(settings) as url:
            job_id = httpx.post(f"{url}/v1/jobs", json={"prompt": "a tree"}).json()["id"]
            polled: list[httpx.Response] = []
            poll = threading.Thread(target=lambda: polled.append(poller.get(f"{url}/v1/jobs/{job_id}?wait=50")))
            poll.start()
            request = reader.build_request("GET", f"{url}/v1/jobs/{job_id}/events")
            reply = reader.send(request, stream=True)
            time.sleep(0.3)
            started = time.monotonic()
        assert time.monotonic() - started < 4
        poll.join()
        assert polled[0].json()["status"] == "queued"
        assert [kind for _, kind, _ in parse(reply.read().decode())] == ["status"]


def test_silence_is_filled_and_an_expired_record_ends_the_stream(settings: Settings) -> None:
    async def watch() -> list[str]:
        async with connect(settings) as backend:
            job = await backend.client.submit(prompt="a tree")
            frames: list[str] = []
            events: AsyncIterator[str] = stream(backend, job, "0", threading.Event(), heartbeat_s=0.1)
            async for frame in events:
                frames.append(frame)
                if frames.count(": alive\n\n") == 2:
                    with redis.Redis.from_url(settings.redis_url) as client:
                        client.delete(f"{settings.key_prefix}job:{job.id}")
            return frames

    frames = asyncio.run(watch())
    assert frames[0] == "retry: 2000\n\n"
    assert frames.count(": alive\n\n") >= 2
    assert not any("event: done" in frame for frame in frames), "a lost record is not a finished job"
