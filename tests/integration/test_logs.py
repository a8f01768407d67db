"""Log lines carry their job and no secret, whatever goes wrong. Secrets are planted, and everything is searched."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import redis
from pydantic import SecretStr

from api_stub.testing import running_api
from tasks.hints import Hinter
from tasks.local.process import free_port
from tasks.local.servers import RedisServer, S3Server
from tasks.logs import about, configure_logs
from tasks.redaction import Redactor, mask
from tasks.settings import Settings
from tasks.store import Hint
from tasks.webhook_queue import WebhookQueue
from tasks.webhooks import WebhookSender
from tests.integration.worker_here import worker_here

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRETS = {
    "redis": "planted-redis/p@ss",
    "hook": "whsec_cGxhbnRlZGhvb2tzZWNyZXQ=",
    "token": "planted-bearer-token",
    "signature": "plantedsignature0123456789",
    "query": "planted-query-of-a-hook",
}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What is written to the log; the process's own set-up is put back."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, sys.excepthook, threading.excepthook
    yield io.StringIO()
    root.handlers[:], root.level = before[0], before[1]
    sys.excepthook, threading.excepthook = before[2], before[3]


@pytest.fixture
def planted(settings: Settings, redis_server: RedisServer) -> Iterator[Settings]:
    with redis.Redis(port=redis_server.port) as server:
        server.execute_command("ACL", "SETUSER", "planted", "on", f">{SECRETS['redis']}", "~*", "&*", "+@all")
        url = f"redis://planted:planted-redis%2Fp%40ss@127.0.0.1:{redis_server.port}/0"
        yield settings.model_copy(
            update={
                "redis_url": url,
                "webhook_secret": SecretStr(SECRETS["hook"]),
                "api_keys": SecretStr(f"other-key, {SECRETS['token']}"),
                "allow_private_urls": True,
                "log_level": "debug",
                "log_format": "json",
            }
        )
        server.execute_command("ACL", "DELUSER", "planted")


def break_everything(settings: Settings, http: httpx.Client) -> tuple[list[str], str]:
    """Ids of jobs that succeeded, failed and met the unexpected; and what else a person may read."""
    shown: list[str] = []

    def unexpected(*args: object) -> None:
        raise RuntimeError(f"{settings!r} {settings.redis_url} Authorization: Bearer {SECRETS['token']}")

    with worker_here(settings) as here:
        signed = f"http://127.0.0.1:{free_port()}/a.png?X-Amz-Credential=k&X-Amz-Signature={SECRETS['signature']}"
        hook = f"http://127.0.0.1:{free_port()}/hook?token={SECRETS['query']}"
        wishes = [{"prompt": "good", "webhook_url": hook}, {"prompt": "broken"}, {"prompt": "a", "image": signed}]
        ids = [http.post("/v1/jobs", json={"num_inference_steps": 2, **wish}).json()["id"] for wish in wishes]
        assert [here.run(job_id) for job_id in ids] == ["succeeded", "failed", "failed"]
        here.generate._uploader.store = unexpected  # type: ignore[method-assign, assignment]
        ids.append(http.post("/v1/jobs", json={"prompt": "worse"}).json()["id"])
        assert here.run(ids[-1]) == "queued"
        sender = WebhookSender(WebhookQueue(here.client._redis), here.client.store.get, settings)
        assert sender.tick()
        away = settings.model_copy(update={"redis_url": settings.redis_url.replace("@127", "@127.0.0.1:1/0#")})
        with closing(Hinter(away)) as hinter:
            hinter.publish([Hint("x", "tiny", 5)])
        thread = threading.Thread(target=unexpected)
        thread.start()
        thread.join()
        jobs = [here.client.get(job_id) for job_id in ids]
        shown += [repr(settings), str(settings), *map(repr, jobs), *(str(job.errors) for job in jobs)]
        for job_id in ids:
            record = here.client._redis.hgetall(f"safelight:job:{job_id}")
            shown.append(str({name: text for name, text in record.items() if name != "request"}))  # type: ignore[union-attr]
    return ids, "\n".join(shown)


def test_no_secret_is_told_and_every_line_names_its_job(
    planted: Settings, s3_server: S3Server, logged: io.StringIO
) -> None:
    configure_logs(planted, logged, worker="here")
    headers = {"Authorization": f"Bearer {SECRETS['token']}", "traceparent": CALLER}
    with running_api(planted) as url, httpx.Client(base_url=url, headers=headers, timeout=20) as http:
        ids, shown = break_everything(planted, http)
    text = logged.getvalue()
    parts = [*SECRETS.values(), "planted-redis%2Fp%40ss", SECRETS["hook"].removeprefix("whsec_"), s3_server.secret_key]
    for where, found in (("log", text), ("records and reprs", shown)):
        assert not [secret for secret in parts if secret in found], where
    lines = [json.loads(line) for line in text.splitlines()]
    assert "RuntimeError" in text and "Traceback" in text, "the unexpected was told"
    assert any(line["logger"] == "uncaught" for line in lines)
    about_jobs = [line for line in lines if any(job_id in line["message"] for job_id in ids)]
    assert len(about_jobs) >= 5
    for line in about_jobs:
        assert {"time", "level", "logger", "job_id", "attempt", "worker", "model"} <= set(line), line
        is_of_the_worker = line["logger"].startswith("worker.")
        assert not is_of_the_worker or line["trace_id"] == CALLER.split("-")[1]
    assert {line["job_id"] for line in about_jobs} == set(ids)


def test_text_says_the_same(planted: Settings, logged: io.StringIO) -> None:
    configure_logs(planted.model_copy(update={"log_format": "text"}), logged, worker="w1")
    log = logging.getLogger("somewhere")
    with about(job_id="j", attempt=2, model="tiny", trace=CALLER):
        log.warning("slow: %s", "https://h/a?X-Amz-Signature=1")
    log.info("after")
    log.info("told by the call", extra={"job_id": "k"})
    first, second, third = logged.getvalue().splitlines()
    trace_id = CALLER.split("-")[1]
    assert first.endswith(f"slow: https://h/a?*** | job_id=j attempt=2 worker=w1 model=tiny trace_id={trace_id}")
    assert second.endswith("INFO somewhere: after | worker=w1")
    assert third.endswith("| job_id=k worker=w1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:pass@h:6379/0 is away", "redis://***@h:6379/0 is away"),
        ("GET https://b.s3/k.png?x=1&X-Amz-Signature=ab 'ok'", "GET https://b.s3/k.png?*** 'ok'"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw rest", "whsec_*** rest"),
        ("http://h:80/v1/jobs?status=queued at 12:00", "http://h:80/v1/jobs?status=queued at 12:00"),
        ("job a/b@c is fine: x@y", "job a/b@c is fine: x@y"),
    ],
)
def test_what_looks_like_a_secret(text: str, shown: str) -> None:
    assert mask(text) == shown


def test_short_words_are_no_secrets() -> None:
    assert Redactor(["x", "longer-secret"])("x longer-secret y") == "x *** y"


def test_reprs_of_settings_and_requests(tmp_path: Path) -> None:
    from tasks.request import GenerationRequest

    settings = Settings(redis_url="sentinel://u:hidden@h1:1;sentinel://h2:2/0?master_name=m")
    assert "hidden" not in repr(settings) and "h2:2" in repr(settings)
    assert "redis://127.0.0.1:6379/0" in repr(Settings())
    request = GenerationRequest(prompt="a", image="data:image/png;base64," + "A" * 500, webhook_url="https://h/x?t=1")
    assert "AAAA" not in repr(request) and "https://h/***" in repr(request)
