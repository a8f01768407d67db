"""Whole jobs over Redis as users run it: other releases, a user with few rights, a socket, TLS, a full memory."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis

from api_stub.testing import running_api
from tasks import AsyncClient
from tasks.app import SUBMIT, make_app
from tasks.errors import StoreFull, StoreUnavailable
from tasks.job import Job
from tasks.local.servers import S3Server
from tasks.redis_rights import worker_samples
from tasks.settings import Settings
from tests.e2e.nodes import LEASE_S, Fleet, eventually, fleet
from tests.redis_kinds import Guarded, running
from tests.tls_proxy import make_papers, tls_proxy
from tests.unit.test_redis_rights import documented

USER, PASSWORD = "safe@:/#[%]é;light", "p@:/#[%]é;?&=+"
#: Of the connection, of transactions, and of this test's administrator.
BESIDE = {
    "auth",
    "client|setinfo",
    "config|resetstat",
    "discard",
    "exec",
    "hello",
    "info",
    "multi",
    "select",
    "unwatch",
}
LOGIN = f"{quote(USER, safe='')}:{PASSWORD}@"


@dataclass(frozen=True)
class Site:
    """A worker at work, and the administrator of its Redis."""

    fleet: Fleet
    admin: Any


@contextlib.contextmanager
def site(folder: Path, s3: S3Server, url: str, admin: Any) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
        bucket = f"redis-{folder.name}".replace("_", "-")
        settings = Settings(
            redis_url=url, s3_endpoint_url=s3.url, s3_bucket=bucket, worker_name="test", spool_dir=folder / "spool"
        )
        with fleet(settings, folder / "n", fake="step_ms=5") as running_fleet:
            running_fleet.start_worker()
            yield Site(running_fleet, admin)


def grant(admin: Any) -> None:
    """The line of the documentation, with another name and password."""
    words = [{"safelight": USER, ">PASSWORD": f">{PASSWORD}"}.get(word, word) for word in documented()]
    assert admin.execute_command(*words) in ("OK", b"OK", True)
    admin.execute_command("ACL", "SETUSER", "default", "resetpass", ">admin")
    admin.execute_command("ACL", "LOG", "RESET")


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Site]:
    """Redis 6.2 at a unix socket."""
    folder = tmp_path_factory.mktemp("oldest")
    socket = folder / "redis.sock"
    with running(folder / "redis", "redis-6.2", "--unixsocket", str(socket)) as server:
        with redis.Redis(port=server.port, decode_responses=True) as admin:
            grant(admin)
            with site(folder, s3_server, f"unix://{LOGIN}{socket}", admin) as at:
                yield at


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("newest")
    with running(folder / "redis", "redis-8") as server:
        with redis.Redis(port=server.port, decode_responses=True) as admin:
            grant(admin)
            with site(folder, s3_server, f"redis://{LOGIN}127.0.0.1:{server.port}/0", admin) as at:
                yield at


def live(at: Fleet) -> None:
    """Everything that a user does: submit, watch, abort, submit by Celery, ask and control the workers."""
    done = at.client.wait(at.submit().id, timeout_s=30)
    assert (done.status, done.attempt) == ("succeeded", 1)
    assert [event.type for event in at.client.events(done.id)][-1] == "done"
    doomed = at.submit(num_inference_steps=1000)
    at.wait_step(doomed, 2)
    at.client.abort(doomed.id)
    assert at.client.wait(doomed.id, timeout_s=20).status == "aborted"
    app = make_app(at.settings)
    app.send_task(SUBMIT, kwargs={"prompt": "x", "height": 16, "width": 16, "num_inference_steps": 2}, task_id="sent")
    eventually(lambda: "sent" in [job.id for job in at.client.store.list().jobs], 20, "the message becomes a job")
    assert at.client.wait("sent", timeout_s=20).status == "succeeded"
    assert app.control.inspect(timeout=2).ping()
    app.close()


@pytest.mark.parametrize("where", ["oldest", "newest"])
def test_a_user_with_the_documented_rights_is_refused_nothing(where: str, request: pytest.FixtureRequest) -> None:
    at: Site = request.getfixturevalue(where)
    live(at.fleet)
    refused = {entry["object"] for entry in at.admin.execute_command("ACL", "LOG")}
    assert {name for name in refused if not name.startswith("client")} == set()  # redis-py tells its name if it may


def test_what_is_asked_for_at_the_start_is_what_is_sent(newest: Site) -> None:
    """So that the tests of `redis_rights` (granted, old enough) speak of the commands that are really sent."""
    newest.admin.config_resetstat()
    live(newest.fleet)
    sent = {name.removeprefix("cmdstat_") for name in newest.admin.info("commandstats")}
    asked = {sample.command for sample in worker_samples("safelight:", ["fake"], ["safelight.submit"], 0)}
    assert len(sent) > 30
    assert sent - asked <= BESIDE


def test_a_full_memory_refuses_new_jobs_and_loses_none(newest: Site) -> None:
    at = newest.fleet
    running_job = at.submit(num_inference_steps=300)
    at.wait_step(running_job, 2)
    waiting = at.client.submit_many([{"prompt": "x", "height": 16, "width": 16}] * 30)
    newest.admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull, match="maxmemory"):
            at.submit()
        with running_api(at.settings) as url:
            reply = httpx.post(f"{url}/v1/jobs", json={"prompt": "x"}, timeout=20)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "30")
        assert reply.json()["type"] == "urn:safelight:problem:store_full"
        assert at.client.get(running_job.id).status == "running"
        time.sleep(LEASE_S + 1)  # no lease can be renewed, and nobody may be blamed for that
        assert at.client.get(running_job.id).status == "running"
    finally:
        newest.admin.config_set("maxmemory", 0)
    for job in [running_job, *waiting]:
        done = at.client.wait(job.id, timeout_s=40)
        assert (done.status, done.attempt, done.errors) == ("succeeded", 1, ())
    assert at.client.wait(at.submit().id, timeout_s=10).status == "succeeded"


def test_a_worker_behind_tls_with_a_client_certificate(tmp_path: Path, s3_server: S3Server) -> None:
    papers = make_papers(tmp_path)
    with running(tmp_path / "redis") as server, tls_proxy(papers, server.port) as port:
        with site(tmp_path, s3_server, f"rediss://127.0.0.1:{port}/0?{papers.parameters}", None) as at:
            live(at.fleet)


def test_work_goes_on_after_a_failover(tmp_path: Path, s3_server: S3Server) -> None:
    flags = ("--requirepass", "p@ss;word", "--masterauth", "p@ss;word")
    extra = "sentinel auth-pass pictures p@ss;word\nrequirepass sentinels\nsentinel sentinel-pass sentinels\n"
    with contextlib.ExitStack() as stack:
        guarded = Guarded(tmp_path / "redis", stack, *flags, extra=extra, password="sentinels")
        url = guarded.url(":p@ss;word@") + "&sentinel_password=sentinels"
        at = stack.enter_context(site(tmp_path, s3_server, url, None)).fleet
        during = at.submit(num_inference_steps=800)
        at.wait_step(during, 2)
        assert guarded.copied("p@ss;word")
        guarded.primary.process.send(signal.SIGKILL)
        after = accepted(at, timeout_s=40)
        for job in (after, during):
            done = at.client.wait(job.id, timeout_s=40)
            assert (done.status, done.attempt) == ("succeeded", 1)
        assert asyncio.run(read(at.settings, after.id)).status == "succeeded"


async def read(settings: Settings, job_id: str) -> Job:
    async with AsyncClient(settings) as client:
        return await client.get(job_id)


def accepted(at: Fleet, timeout_s: float) -> Job:
    """A job that is submitted again and again until somebody takes it, as a client does."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return at.submit()
        except StoreUnavailable:
            assert time.monotonic() < deadline, "no primary came back"
