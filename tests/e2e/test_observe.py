"""A real worker as seen from outside: Celery's events, its own metrics, estimates from measured steps, explanations."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from api_stub.testing import running_api
from tasks.app import make_app
from tasks.local.process import free_port
from tasks.settings import Settings
from tests.e2e.nodes import Fleet, eventually, fleet

STEP_S = 0.04


@contextlib.contextmanager
def celery_events(settings: Settings) -> Iterator[list[dict[str, Any]]]:
    """What Celery's own receiver hears, as Flower does."""
    heard: list[dict[str, Any]] = []
    app = make_app(settings)
    listens = threading.Event()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": heard.append})
        receiver.on_consume_ready = lambda *args, **kwargs: listens.set()
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        thread.start()
        assert listens.wait(20)
        try:
            yield heard
        finally:
            receiver.should_stop = True
            thread.join()


def types_of(events: list[dict[str, Any]]) -> set[str]:
    return {event["type"] for event in events}


def test_a_worker_is_seen_from_outside(settings: Settings, tmp_path: Path) -> None:
    port = free_port()
    more = {"metrics_port": port, "look_ahead_rows": 1, "log_format": "json"}
    with fleet(settings, tmp_path / "n", fake=f"step_ms={1000 * STEP_S}", max_batch_rows=1, **more) as running:
        early = running.submit()
        assert [reason.code for reason in running.client.explain(early.id).reasons] == ["no_worker"]
        with celery_events(running.settings) as heard:
            running.start_worker("seen")
            assert running.client.wait(early.id, timeout_s=30).status == "succeeded"
            wanted = {"worker-online", "worker-heartbeat", "task-received", "task-started", "task-succeeded"}
            eventually(lambda: wanted <= types_of(heard), 20, "every event was heard")
        received = next(event for event in heard if event["type"] == "task-received")
        assert (received["name"], received["uuid"]) == ("safelight.generate", early.id)
        own = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert 'safelight_step_seconds_count{model="fake",worker="seen"} 4.0' in own
        estimates_are_measured(running)
        explanations_are_true(running)
    lines = [json.loads(line) for line in (tmp_path / "n/seen.log").read_text("utf-8").splitlines()]
    ends = [line for line in lines if line.get("job_id") == early.id]
    assert ends and all((line["attempt"], line["model"], line["worker"]) == (1, "fake", "seen") for line in ends)


def estimates_are_measured(running: Fleet) -> None:
    """A step cannot be faster than the fake sleeps, and the estimate is that of the steps seen so far."""
    began = time.monotonic()
    job = running.submit(num_inference_steps=60)
    running.wait_step(job, 20)
    progress = running.client.get(job.id).progress
    elapsed_s = time.monotonic() - began
    left = 60 - progress.step
    assert progress.eta_s is not None
    assert 0.75 * left * STEP_S < progress.eta_s < 2 * elapsed_s / progress.step * left + 1
    assert running.client.wait(job.id, timeout_s=30).status == "succeeded"


def explanations_are_true(running: Fleet) -> None:
    jobs = [running.submit(num_inference_steps=200, width=16 + 8 * (n == 1)) for n in range(5)]
    running.wait_step(jobs[0], 2)

    def differs() -> list[list[str]]:
        return [list(company.differs_in) for company in running.client.explain(jobs[1].id).running]

    eventually(lambda: differs() == [["width"]], 20, "a beat told what runs now, and not what ran before")
    with running_api(running.settings) as url:
        told = httpx.get(f"{url}/v1/jobs/{jobs[1].id}/explain").json()
        assert httpx.get(f"{url}/v1/jobs/nobody/explain").status_code == 404
    assert {"waits_for_batch", "differs"} <= {reason["code"] for reason in told["reasons"]}
    waiting = [running.client.explain(job.id) for job in jobs]
    queued = [told for told in waiting if told.status == "queued"]
    assert queued
    assert all("rows_busy" in [reason.code for reason in told.reasons] for told in queued)
    assert all(told.eta_s is not None and told.eta_s > 200 * STEP_S for told in queued)
    for job in jobs:
        running.client.abort(job.id)
    ended = running.client.wait(jobs[0].id, timeout_s=20)
    assert (ended.status, ended.metrics.batch_size_mean) == ("aborted", 1)
    assert ended.metrics.device_seconds is not None and ended.metrics.device_seconds >= 2 * STEP_S
    told_end = running.client.explain(jobs[0].id)
    assert told_end.batching is not None and told_end.batching.rows_max == 1
