"""Messages as turns through a real worker process: limits, priorities, revokes."""

from __future__ import annotations

from pathlib import Path

from celery import Celery

from tasks.app import make_app
from tasks.job import Job
from tasks.settings import Settings
from tests.e2e.nodes import eventually, fleet


def overlap(one: Job, other: Job) -> bool:
    assert one.started_at and one.finished_at and other.started_at and other.finished_at
    return one.started_at < other.finished_at and other.started_at < one.finished_at


def test_a_capped_tenant_runs_one_by_one_beside_the_others_and_a_revoke_meets_its_own_job(
    settings: Settings, tmp_path: Path
) -> None:
    tenants = tmp_path / "tenants.toml"
    tenants.write_text("[acme]\nmax_running_rows = 1\n", "utf-8")
    producer = Celery(broker=settings.redis_url)
    with fleet(settings, tmp_path / "n", fake="step_ms=10", tenants=tenants) as running:
        client = running.client
        size = {"prompt": "a boat", "height": 16, "width": 16, "num_inference_steps": 30}
        capped = [client.submit({**size, "priority": priority}, tenant="acme").id for priority in (0, 5, 9, 5)]
        free = [client.submit(size).id for _ in range(2)]
        running.start_worker()
        sent = producer.send_task(
            "safelight.submit", kwargs=size, queue="safelight.submit", headers={"tenant": "acme"}
        ).id
        eventually(lambda: any(job.id == sent for job in client.store.list().jobs), 20, "created")
        make_app(running.settings).control.revoke(capped[0], terminate=True)
        eventually(lambda: client.get(capped[0]).status == "aborted", 20, "the job that was named")
        acme = [client.wait(job_id, timeout_s=40) for job_id in [*capped[1:], sent]]
        others = [client.wait(job_id, timeout_s=40) for job_id in free]
        assert {job.status for job in acme + others} == {"succeeded"}
        assert {job.attempt for job in acme + others} == {1}
        assert {job.tenant for job in acme} == {"acme"}
        assert not any(overlap(one, other) for one in acme for other in acme if one is not other)
        assert any(overlap(one, other) for one in acme for other in others), "a worker was free for them"
        assert acme[1].started_at and acme[0].started_at and acme[1].started_at < acme[0].started_at, "9 before 5"
        unwanted = client.submit({**size, "num_inference_steps": 1000}, tenant="acme")
        running.wait_step(unwanted, 1)
        client.abort(unwanted.id)
        assert client.wait(unwanted.id, timeout_s=20).status == "aborted"
        eventually(lambda: client.store.tenants() == [], 5, "nothing is counted any more")
