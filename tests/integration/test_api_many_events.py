"""Many jobs in one event stream, and what else the page needs: brief lists, a group aborted at once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from api_stub.backend import connect
from api_stub.many_events import MAX_IDS, cursors, stream
from api_stub.testing import running_api
from tasks.client import Client
from tasks.job import JobStatus
from tasks.settings import Settings
from tests.integration.test_api_events import parse, run, submit

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs=" + "A" * 200


@pytest.fixture
def api(settings: Settings) -> Iterator[httpx.Client]:
    with running_api(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture
def backend(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


def test_each_job_is_told_from_its_start_to_done_and_then_the_end(api: httpx.Client, backend: Client) -> None:
    first, second = submit(api), submit(api)
    workers = [threading.Thread(target=run, args=(backend, job_id, 3, 0.1)) for job_id in (first, second)]
    for worker in workers:
        worker.start()
    reply = api.get("/v1/events", params={"ids": f"{first},{second}"})
    for worker in workers:
        worker.join()
    events = parse(reply.text)
    for job_id in (first, second):
        own = [(kind, data) for _, kind, data in events if data.get("id") == job_id]
        assert [data["step"] for kind, data in own if kind == "progress"] == [1, 2, 3]
        assert own[-1] == ("done", api.get(f"/v1/jobs/{job_id}").json())
    assert [kind for _, kind, _ in events].count("end") == 1 and events[-1][1] == "end"


def test_a_job_goes_on_after_the_event_that_its_reader_has_seen(api: httpx.Client, backend: Client) -> None:
    first, second = submit(api), submit(api)
    run(backend, first)
    seen = parse(api.get(f"/v1/jobs/{first}/events").text)
    with api.stream("GET", "/v1/events", params={"ids": f"{first},{second}"}) as reply:
        head = next(text for text in reply.iter_text() if "event: done" in text)
    assert [kind for _, kind, _ in parse(head)][:1] == ["done"]  # ended before the stream opened: its record is enough
    with api.stream("GET", "/v1/events", params={"ids": f"{second}@{seen[-1][0]}"}) as reply:
        run(backend, second)
        text = "".join(reply.iter_text())
    assert [kind for _, kind, _ in parse(text)][-2:] == ["done", "end"]
    assert all(event_id > seen[-1][0] for event_id, kind, _ in parse(text) if event_id)


def test_a_browser_that_reconnects_repeats_a_millisecond_rather_than_miss_an_event(
    api: httpx.Client, backend: Client
) -> None:
    """Two streams may carry the same millisecond, and the browser names only the last event of either."""
    assert cursors("a,b@7-1", "1000-3") == {"a": "999", "b": "999"}
    assert cursors("a,b@7-1", None) == {"a": "0", "b": "7-1"}
    jobs = [submit(api) for _ in range(2)]
    ids = ",".join(jobs)
    with api.stream("GET", "/v1/events", params={"ids": ids}) as reply:
        parts = reply.iter_text()
        head = ""
        while head.count("event: status") < 2:
            head += next(parts)
    last = max(event_id for event_id, _, _ in parse(head))
    for job_id in jobs:
        run(backend, job_id)
    text = api.get("/v1/events", params={"ids": ids}, headers={"Last-Event-ID": last}).text
    assert sorted(data["id"] for _, kind, data in parse(text) if kind == "done") == sorted(jobs)


def test_an_unknown_job_is_gone_and_the_others_go_on(api: httpx.Client, backend: Client) -> None:
    job_id = submit(api)
    run(backend, job_id)
    events = parse(api.get("/v1/events", params={"ids": f"no-such-job,{job_id}"}).text)
    assert [(kind, data.get("id")) for _, kind, data in events] == [
        ("gone", "no-such-job"),
        ("done", job_id),
        ("end", None),
    ]


@pytest.mark.parametrize("ids", ["", ",", "a b", "a@x", ",".join(f"job{n}" for n in range(MAX_IDS + 1))])
def test_what_is_not_a_list_of_jobs_is_refused(api: httpx.Client, ids: str) -> None:
    reply = api.get("/v1/events", params={"ids": ids})
    assert (reply.status_code, reply.json()["field"]) == (422, "ids")


def test_a_done_whose_stream_has_expired_is_found_in_the_record(settings: Settings, backend: Client) -> None:
    async def read() -> list[str]:
        async with connect(settings) as parts:
            job = await parts.client.submit(prompt="a tree")
            frames = []
            async for frame in stream(parts, {job.id: "0"}, threading.Event(), heartbeat_s=0.2):
                frames.append(frame)
                if len(frames) == 3:  # it waits; now it ends, and nothing of its stream is left
                    await parts.client.abort(job.id)
                    await parts.client._redis.delete(f"{settings.key_prefix}events:{job.id}")
            return frames

    frames = asyncio.run(read())
    assert any("event: done" in frame and '"aborted"' in frame for frame in frames)
    assert frames[-1].startswith("event: end")


def test_a_brief_list_leaves_out_the_bytes_of_pictures(api: httpx.Client) -> None:
    api.post("/v1/jobs", json={"prompt": "a tree", "image": PIXEL}).raise_for_status()
    (brief,) = api.get("/v1/jobs", params={"brief": True}).json()["jobs"]
    assert brief["request"]["image"] == "data:image/gif;base64,..."
    (whole,) = api.get("/v1/jobs").json()["jobs"]
    assert whole["request"]["image"] == PIXEL
    assert json.dumps(brief).replace("data:image/gif;base64,...", PIXEL) == json.dumps(whole)


def test_a_group_is_aborted_at_once_and_no_other_job(api: httpx.Client, backend: Client) -> None:
    ids = [api.post("/v1/jobs", json={"prompt": "a tree", "group": "a/b &c"}).json()["id"] for _ in range(2)]
    other = submit(api)
    reply = api.post("/v1/jobs/abort", params={"group": "a/b &c"})
    assert (reply.status_code, sorted(reply.json()["aborted"])) == (202, sorted(ids))
    assert [backend.get(job_id).status for job_id in (*ids, other)] == [
        JobStatus.ABORTED,
        JobStatus.ABORTED,
        JobStatus.QUEUED,
    ]
    assert api.post("/v1/jobs/abort").json()["field"] == "group"
