"""Whole jobs over Redis as users run it: other releases, a user with few rights, a socket, TLS, a full memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis

from api_stub.testing import running_api
from tasks.app import SUBMIT, make_app
from tasks.errors import StoreFull
from tasks.local.servers import S3Server
from tasks.settings import Settings
from tests.e2e.nodes import Fleet, eventually, fleet
from tests.redis_kinds import running
from tests.unit.test_redis_rights import documented

USER, PASSWORD = "safe@:/#[%]é;light", "p@:/#[%]é;?&=+"
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
        settings = Settings(redis_url=url, s3_endpoint_url=s3.url, s3_bucket=bucket, worker_name="test")
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
        with redis.Redis(port=server.port, password=None, decode_responses=True) as admin:
            grant(admin)
            with site(folder, s3_server, f"unix://{LOGIN}{socket}", admin) as at:
                yield at


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("newest")
    with running(folder / "redis", "redis-8") as server, redis.Redis(port=server.port) as admin:
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
    log = at.admin.execute_command("ACL", "LOG")
    assert not log, log
