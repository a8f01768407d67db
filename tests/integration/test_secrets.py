"""Secrets are planted everywhere, and then looked for: in `repr`, in records, in every answer and in every error."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import httpx
import pytest
import redis
from pydantic import SecretStr

from api_stub.problems import as_problem, respond
from api_stub.testing import running_api
from tasks.artifacts import ArtifactStore
from tasks.client import Client
from tasks.errors import ConfigError, SafelightError
from tasks.inputs import InputLoader
from tasks.local.process import free_port
from tasks.local.servers import RedisServer
from tasks.settings import Settings, read_settings

PLANT = "pl4nted"
SIGNED = f"X-Amz-Signature={PLANT}signature&X-Amz-Security-Token={PLANT}token"


@pytest.fixture(scope="module")
def planted(redis_server: RedisServer) -> Iterator[Settings]:
    """The shared Redis under a user whose password is planted, and a store that nobody runs."""
    with pytest.MonkeyPatch.context() as changed, redis.Redis(port=redis_server.port) as client:
        changed.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
        changed.setenv("AWS_SECRET_ACCESS_KEY", f"{PLANT}-aws-secret")
        client.flushall()
        client.execute_command("ACL", "SETUSER", "app", "on", f">{PLANT}-redis", "~*", "&*", "+@all")
        yield Settings(
            redis_url=f"redis://app:{PLANT}-redis@127.0.0.1:{redis_server.port}/0",
            s3_endpoint_url=f"http://127.0.0.1:{free_port()}",
            api_keys=SecretStr(f"web:{PLANT}-key"),
            webhook_secret=SecretStr(f"whsec_{PLANT}"),
            rate_limit="100/minute",
        )
        client.execute_command("ACL", "DELUSER", "app")


@pytest.fixture(scope="module")
def api(planted: Settings) -> Iterator[httpx.Client]:
    with running_api(planted) as url, httpx.Client(base_url=url) as client:
        yield client


def failure(call: object, *args: object) -> str:
    """All that a log or a record could take from the error: the message, and the traceback with its causes."""
    try:
        call(*args)  # type: ignore[operator]
    except Exception as error:
        return str(error) + repr(error) + "".join(traceback.format_exception(error))
    raise AssertionError("it did not fail")


def test_settings_show_no_secret(planted: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PLANT not in repr(planted) + str(planted) + f"{planted!r}"
    for name, value in (("REDIS_URL", "http"), ("API_KEYS", ""), ("RATE_LIMIT", ""), ("CORS_ORIGINS", "x://")):
        with monkeypatch.context() as changed, contextlib.suppress(ConfigError):
            changed.setenv(f"SAFELIGHT_{name}", f"{value}{PLANT}@host")
            settings = read_settings()
            assert PLANT not in repr(settings)


def test_no_answer_and_no_record_holds_one(api: httpx.Client, redis_server: RedisServer) -> None:
    answers: list[httpx.Response] = []
    api.headers["Authorization"] = f"Bearer {PLANT}-key"
    job = api.post("/v1/jobs", json={"prompt": "a", "webhook_url": "https://h.example/hook"})
    assert job.status_code == 202
    paths = [route.replace("{job_id}", job.json()["id"]) for route in api.get("/openapi.json").json()["paths"]]
    answers += [job, *(api.get(path.replace("{number}", "0")) for path in paths if not path.endswith("/events"))]
    answers += [api.get(path) for path in ("/", "/docs", "/openapi.json", "/page/app.js")]
    answers += [api.post(f"/v1/jobs/{job.json()['id']}/{verb}") for verb in ("replay", "abort")]
    api.headers["Authorization"] = f"Bearer {PLANT}-wrong"
    answers += [api.get("/v1/jobs"), api.post("/v1/jobs", json={}), api.get("/metrics")]
    for answer in answers:
        assert PLANT not in answer.text + str(answer.headers), answer.url
    assert len(answers) > 15
    with redis.Redis(port=redis_server.port) as client:
        stored = [client.dump(key) or b"" for key in client.scan_iter()]
    assert len(stored) > 3
    assert not any(PLANT.encode() in value for value in stored)


def test_no_error_holds_one(planted: Settings) -> None:
    wrong = planted.model_copy(update={"redis_url": planted.redis_url.replace("-redis@", "-wrong@")})
    away = planted.model_copy(update={"redis_url": f"redis://app:{PLANT}@127.0.0.1:{free_port()}/0"})
    for settings in (wrong, away):
        with Client(settings) as client:
            assert PLANT not in failure(client.submit, {"prompt": "a"})
    artifacts = ArtifactStore(planted)
    assert PLANT not in failure(artifacts.probe)
    assert PLANT not in failure(artifacts.put, "k", b"x", "text/plain", "0")
    hidden = respond(as_problem(SafelightError(f"{PLANT} in a fault of ours")))
    assert PLANT not in bytes(hidden.body).decode()


def test_why_an_input_cannot_be_had_tells_no_signature(planted: Settings) -> None:
    artifacts = ArtifactStore(planted)
    loaders = [
        InputLoader(planted.model_copy(update={"allow_private_urls": allow}), artifacts) for allow in (False, True)
    ]
    for url in (
        f"https://127.0.0.1:{free_port()}/a.png?{SIGNED}",
        f"https://localhost/a.png?{SIGNED}",
        f"https://nowhere.invalid/a.png?{SIGNED}",
        f"https://host:port/a.png?{SIGNED}",
        f"https://[::1/a.png?{SIGNED}",
        f"ftp://8.8.8.8/a.png?{SIGNED}",
        f"s3://elsewhere/a.png?{SIGNED}",
    ):
        for loader in loaders:
            assert PLANT not in failure(loader.load_image, url, "image").split("Traceback")[0]


def test_a_problem_about_a_url_does_not_repeat_it(api: httpx.Client) -> None:
    api.headers["Authorization"] = f"Bearer {PLANT}-key"
    for field in ("image", "webhook_url"):
        for bad in (f"ftp://h/{PLANT}", f"https://u:{PLANT}@h/", f"https://h/{PLANT}\n", 7, f"{PLANT}" * 1_000):
            reply = api.post("/v1/jobs", json={"prompt": "a", field: bad})
            assert reply.status_code == 422, (field, str(bad)[:40])
            assert PLANT not in reply.text
