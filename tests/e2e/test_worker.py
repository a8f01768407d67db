"""Jobs through a real worker process: from a request to verified objects, aborted and batched without harm."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from PIL import Image

from tasks import Job
from tasks.artifacts import ArtifactStore
from tasks.errors import InvalidRequest
from tasks.local.process import free_port
from tasks.settings import Settings
from tests.chaos.evidence import read_stored
from tests.e2e.nodes import Fleet, eventually, fleet


def pixels_of(running: Fleet, job: Job) -> list[str]:
    """Digests of the pictures (a file also carries its job's id); the stored bytes are checked against the record."""
    artifacts = ArtifactStore(running.settings)
    bodies = [artifacts.get(output.uri, 2**24) for output in job.outputs]
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]
    assert digests == [output.sha256 for output in job.outputs]
    assert [len(body) for body in bodies] == [output.size_bytes for output in job.outputs]
    return [hashlib.sha256(Image.open(io.BytesIO(body)).tobytes()).hexdigest() for body in bodies]


def ended(running: Fleet, jobs: list[Job], timeout_s: float = 60) -> list[Job]:
    return [running.client.wait(job.id, timeout_s=timeout_s) for job in jobs]


def test_a_mixed_load_succeeds_with_verified_objects_in_the_process_that_has_the_model(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report ApeRAG#331: a child that Celery forks can neither use CUDA nor share a model."""
    for variable in ("CELERYD_POOL", "CELERY_WORKER_POOL", "CELERY_CUSTOM_WORKER_POOL"):
        monkeypatch.setenv(variable, "celery.concurrency.prefork:TaskPool")
    steps = tmp_path / "steps.log"
    with fleet(settings, tmp_path / "n", fake=f"step_ms=5,step_log={steps}") as running:
        worker = running.start_worker()
        jobs = [
            running.submit(f"boat {n}", height=8 * (1 + n % 3), num_inference_steps=2 + n % 2, num_outputs=1 + n % 4)
            for n in range(20)
        ]
        done = ended(running, jobs)
        assert {job.status for job in done} == {"succeeded"}
        for job in done:
            assert len(pixels_of(running, job)) == job.request.num_outputs
            assert [output.seed for output in job.outputs] == [
                (job.request.seed or 0) + k for k in range(job.request.num_outputs)
            ]
            assert all(f"/{job.attempt}/" in output.uri for output in job.outputs)
            assert job.attempt == 1
            assert job.metrics.total_ms is not None
            assert job.metrics.total_ms >= (job.metrics.denoise_ms or 0)
        assert max(job.metrics.batch_size_mean or 0 for job in done) > 1
        assert {int(line.split()[1]) for line in steps.read_text("ascii").splitlines()} == {worker.pid}
        assert psutil.Process(worker.pid).children(recursive=True) == []


def test_an_aborted_row_leaves_and_its_mates_are_equal_to_a_clean_run(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=40") as running:
        running.start_worker()
        fields = {"num_inference_steps": 60}
        clean = ended(running, [running.submit("mate", seed=n, **fields) for n in range(3)])
        mates = [running.submit("mate", seed=n, **fields) for n in range(3)]
        victim = running.submit("mate", seed=99, **fields)
        running.wait_step(victim, 3)
        running.client.abort(victim.id)
        gone = running.client.wait(victim.id, timeout_s=5)
        assert gone.status == "aborted"
        assert gone.outputs == ()
        assert gone.progress.step < 60
        assert [pixels_of(running, job) for job in ended(running, mates)] == [pixels_of(running, job) for job in clean]


def test_an_abort_without_any_worker_is_final(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n") as running:
        job = running.submit()
        assert running.client.abort(job.id).status == "aborted"
        running.start_worker()
        other = running.client.wait(running.submit().id, timeout_s=20)
        assert other.status == "succeeded"
        untouched = running.client.get(job.id)
        assert (untouched.status, untouched.attempt, untouched.outputs) == ("aborted", 0, ())
        keys = list(read_stored(running.settings).objects)
        assert any(other.id in key for key in keys) and not any(job.id in key for key in keys)


def test_an_abort_key_set_by_an_outside_program_is_honoured(settings: Settings, tmp_path: Path) -> None:
    import redis

    with fleet(settings, tmp_path / "n", fake="step_ms=40") as running:
        running.start_worker()
        job = running.submit(num_inference_steps=500)
        running.wait_step(job, 1)
        with redis.Redis.from_url(settings.redis_url) as outside:
            outside.set(f"safelight:abort:{job.id}", "1")
        assert running.client.wait(job.id, timeout_s=5).status == "aborted"


def test_aborts_around_the_finish_never_reach_the_next_job(settings: Settings, tmp_path: Path) -> None:
    """Report ComfyUI#2566: an abort without an id kills whatever runs next."""
    with fleet(settings, tmp_path / "n", fake="step_ms=2", max_batch_rows=1) as running:
        running.start_worker()
        for trial in range(25):
            first, second = running.submit("first"), running.submit("second")
            eventually(lambda job=first: running.client.get(job.id).status != "queued", 10, "claimed")
            if trial % 3:
                running.client.wait(first.id, timeout_s=10) if trial % 3 == 2 else None
            running.client.abort(first.id)
            one, two = ended(running, [first, second])
            assert one.status in ("succeeded", "aborted")
            assert two.status == "succeeded"
            assert bool(one.outputs) == (one.status == "succeeded")


def test_one_bad_row_fails_alone(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=5,nan_prompt=black,fail_prompt=broken,oom_above=3") as running:
        running.start_worker()
        good = [running.submit(f"good {n}") for n in range(9)]
        black, broken = running.submit("a black hole"), running.submit("a broken cup")
        for job in ended(running, good):
            assert (job.status, job.attempt, job.errors) == ("succeeded", 1, ())
        for job in ended(running, [black, broken]):
            assert job.status == "failed"
            assert job.error is not None
            assert job.error.type == "model_error"
            assert job.outputs == ()


def test_bad_input_never_becomes_a_job(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n") as running:
        for fields, field in (
            ({"height": 20}, "height"),
            ({"num_inference_steps": 1001}, "num_inference_steps"),
            ({"noise_scheduler": "nope"}, "noise_scheduler"),
            ({"model": "nope"}, "model"),
        ):
            with pytest.raises(InvalidRequest) as caught:
                running.submit(**fields)
            assert caught.value.field == field
        assert not running.client.store.list().jobs


def test_a_passed_deadline_fails_the_job_and_a_long_one_does_not(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=40") as running:
        running.start_worker()
        late = running.submit(num_inference_steps=1000, deadline_s=1)
        fine = running.submit(deadline_s=60)
        late, fine = ended(running, [late, fine])
        assert fine.status == "succeeded"
        assert late.error is not None
        assert late.error.type == "deadline_exceeded"


def test_any_celery_producer_can_submit_and_knows_the_id(settings: Settings, tmp_path: Path) -> None:
    from celery import Celery

    producer = Celery(broker=settings.redis_url)
    with fleet(settings, tmp_path / "n") as running:
        running.start_worker()
        sent = producer.send_task(
            "safelight.submit", kwargs={"prompt": "a boat", "height": 16, "width": 16}, queue="safelight.submit"
        )
        bad = producer.send_task("safelight.submit", kwargs={"prompt": ""}, queue="safelight.submit")
        eventually(lambda: {j.id for j in running.client.store.list().jobs} >= {sent.id}, 20, "created")
        assert running.client.wait(sent.id, timeout_s=20).status == "succeeded"
        eventually(lambda: {j.id for j in running.client.store.list().jobs} >= {bad.id}, 20, "told")
        refused = running.client.get(bad.id)
        assert (refused.status, refused.error and refused.error.type) == ("failed", "invalid_request")


def test_a_submit_message_does_not_wait_behind_jobs(settings: Settings, tmp_path: Path) -> None:
    from celery import Celery

    producer = Celery(broker=settings.redis_url)
    with fleet(settings, tmp_path / "n", fake="step_ms=40", max_batch_rows=1, look_ahead_rows=0) as running:
        running.start_worker()
        jobs = [running.submit(num_inference_steps=1000) for _ in range(6)]
        eventually(lambda: any(running.client.get(job.id).progress.step for job in jobs), 20, "one of them runs")
        sent = producer.send_task(
            "safelight.submit", kwargs={"prompt": "a boat", "height": 16, "width": 16}, queue="safelight.submit"
        )
        eventually(lambda: sent.id in {job.id for job in running.client.store.list().jobs}, 20, "created meanwhile")
        assert sorted(running.client.get(job.id).status for job in jobs) == ["queued"] * 5 + ["running"]
        for job in jobs:
            running.client.abort(job.id)
        done = running.client.wait(sent.id, timeout_s=20)
        assert (done.status, done.attempt) == ("succeeded", 1)
        assert "every place for jobs" not in running.logs(), "several a second, while all is well"


def test_repeated_messages_make_one_run(settings: Settings, tmp_path: Path) -> None:
    from tasks.hints import Hinter
    from tasks.store import Hint

    with fleet(settings, tmp_path / "n", fake="step_ms=30") as running:
        running.start_worker()
        job = running.submit(num_inference_steps=40)
        hinter = Hinter(running.settings)
        for _ in range(5):
            hinter.publish([Hint(job.id, "fake", 5)])
        done = running.client.wait(job.id, timeout_s=30)
        assert (done.status, done.attempt) == ("succeeded", 1)


def test_celery_sees_the_delivery_and_its_revoke_aborts_the_job(settings: Settings, tmp_path: Path) -> None:
    from tasks.app import make_app

    with fleet(settings, tmp_path / "n", fake="step_ms=40") as running:
        running.start_worker()
        job = running.submit(num_inference_steps=500)
        running.wait_step(job, 1)
        app = make_app(running.settings)
        active = app.control.inspect(timeout=3).active() or {}
        deliveries = [delivery for node in active.values() for delivery in node]
        (delivery,) = [delivery for delivery in deliveries if job.id in map(str, delivery["args"])]
        app.control.revoke(delivery["id"], terminate=True)
        assert running.client.wait(job.id, timeout_s=10).status == "aborted"


def test_previews_come_as_events_when_asked_for(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=10") as running:
        running.start_worker()
        job = running.submit(num_inference_steps=12, preview_every=4)
        events = list(running.client.events(job.id))
        previews = [event for event in events if event.type == "preview"]
        assert previews
        assert previews[-1].data["image"].startswith("data:image/jpeg;base64,")
        assert events[-1].type == "done"


class Receiver:
    """A web server that keeps what is posted to it."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(json.loads(body) | {"id": self.headers["webhook-id"]})
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"


def test_a_webhook_tells_each_end_once_and_a_dead_one_holds_nobody_up(settings: Settings, tmp_path: Path) -> None:
    receiver = Receiver()
    with fleet(settings, tmp_path / "n", fake="step_ms=20", allow_private_urls=True) as running:
        running.start_worker()
        done = running.submit(webhook_url=receiver.url)
        gone = running.submit(webhook_url=receiver.url, num_inference_steps=500)
        deaf = running.submit(webhook_url=f"http://127.0.0.1:{free_port()}/nobody")
        running.wait_step(gone, 1)
        running.client.abort(gone.id)
        assert running.client.wait(gone.id, timeout_s=5).status == "aborted"
        assert {job.status for job in ended(running, [done, deaf])} == {"succeeded"}
        eventually(lambda: len(receiver.bodies) >= 2, 15, "both were told")
        assert running.client.wait(running.submit().id, timeout_s=20).status == "succeeded"
        told = {body["type"]: body["data"]["id"] for body in receiver.bodies}  # type: ignore[index]
        assert told == {"job.succeeded": done.id, "job.aborted": gone.id}
        assert len(receiver.bodies) == 2
    receiver.server.shutdown()
