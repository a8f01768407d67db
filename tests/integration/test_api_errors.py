"""Every way to say no, as a client sees it: status, problem JSON, headers. And that no input makes a 5xx."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr

from api_stub.testing import running_api
from tasks.job import Job
from tasks.request import GenerationRequest
from tasks.settings import Settings

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def api(settings: Settings) -> Iterator[httpx.Client]:
    with running_api(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


def problem_of(reply: httpx.Response, status: int) -> dict[str, object]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = reply.json()
    assert problem["status"] == status
    assert {"type", "title", "detail"} <= problem.keys()
    return problem


BAD_BODIES: list[tuple[bytes, int, str | None]] = [
    (b"", 400, None),
    (b"{", 400, None),
    (b'{"prompt": "\xff"}', 400, None),
    (b'{"prompt": "a", "seed": NaN}', 400, None),
    (b"[" * 100_000, 400, None),
    (b'{"seed": ' + b"1" * 5_000 + b"}", 400, None),
    (b"[]", 422, None),
    (b'{"prompt": "\\ud800"}', 422, "prompt"),
    (b'{"prompt": "a\\u0000"}', 422, "prompt"),
    (b'{"prompt": "a", "seed": 1e999}', 422, "seed"),
    (b'{"prompt": "a", "seed": 9223372036854775808}', 422, "seed"),
    (b'{"prompt": "a", "seed": -1}', 422, "seed"),
    (b'{"prompt": "a", "\\ud800": 1}', 422, None),
    (b'{"prompt": "a", "size": 1}', 422, "size"),
    (b'{"prompt": "a", "model": "none"}', 422, "model"),
    (b'{"prompt": "a", "strength": 0.5}', 422, "strength"),
    (b'{"prompt": "a", "metadata": ' + b'{"a":' * 300 + b"1" + b"}" * 301, 422, "metadata"),
]


def test_bad_bodies(api: httpx.Client) -> None:
    for body, status, field in BAD_BODIES:
        problem = problem_of(api.post("/v1/jobs", content=body, headers=JSON), status)
        assert problem.get("field") == field, body[:60]


def test_the_other_refusals(api: httpx.Client) -> None:
    problem_of(api.post("/v1/jobs", content=b"prompt=a", headers={"Content-Type": "text/plain"}), 415)
    problem_of(api.post("/v1/jobs"), 415)
    problem_of(api.put("/v1/jobs"), 405)
    problem_of(api.get("/v2"), 404)
    for odd in ("unknown", "%00", "a%20b", "%ff", "..%2f..", "x" * 5_000, "é"):
        problem_of(api.get(f"/v1/jobs/{odd}"), 404)


def test_a_large_body_is_413_with_and_without_a_length(settings: Settings) -> None:
    small = settings.model_copy(update={"max_body_bytes": 2_000})
    with running_api(small) as url, httpx.Client(base_url=url) as api:
        problem_of(api.post("/v1/jobs", content=b" " * 3_000, headers=JSON), 413)
        problem_of(api.post("/v1/jobs", content=iter([b" " * 900] * 3), headers=JSON), 413)
        assert api.post("/v1/jobs", json={"prompt": "a" * 1_900}).status_code == 202


def test_a_full_queue_is_429_and_says_when_to_come_back(settings: Settings) -> None:
    full = settings.model_copy(update={"max_queued": 2})
    with running_api(full) as url, httpx.Client(base_url=url) as api:
        for _ in range(2):
            assert api.post("/v1/jobs", json={"prompt": "a"}).status_code == 202
        reply = api.post("/v1/jobs", json={"prompt": "a"})
        problem_of(reply, 429)
        assert int(reply.headers["retry-after"]) >= 1
        problem_of(api.post("/v1/jobs/batch", json={"jobs": [{"prompt": "a"}]}), 429)


def test_without_redis_it_is_alive_and_says_what_is_away(settings: Settings) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        away = settings.model_copy(update={"redis_url": f"redis://:hidden@127.0.0.1:{port}/0"})
        with running_api(away) as url, httpx.Client(base_url=url, timeout=20) as api:
            reply = api.post("/v1/jobs", json={"prompt": "a"})
            problem = problem_of(reply, 503)
            assert str(port) in str(problem["detail"])
            assert "hidden" not in reply.text
            assert int(reply.headers["retry-after"]) >= 1
            for path in ("/v1/jobs", "/v1/jobs/abc", "/v1/jobs/abc/events", "/v1/queues", "/v1/workers"):
                problem_of(api.get(path), 503)
            assert api.get("/healthz").status_code == 200
            assert api.get("/").status_code == 200
            assert api.get("/v1/models").status_code == 200
            ready = api.get("/readyz")
            assert (ready.status_code, ready.json()["checks"]["s3"]) == (503, "ok")
            assert str(port) in ready.json()["checks"]["redis"]
            assert "safelight_store_up 0.0" in api.get("/metrics").text


def test_without_credentials_of_s3_it_is_not_ready(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with running_api(settings) as url:
        reply = httpx.get(f"{url}/readyz", timeout=20)
    assert (reply.status_code, reply.json()["checks"]["redis"]) == (503, "ok")
    assert "AWS_ACCESS_KEY_ID" in reply.json()["checks"]["s3"]


def test_bearer_tokens(settings: Settings) -> None:
    locked = settings.model_copy(update={"api_keys": SecretStr("alpha,beta")})
    with running_api(locked) as url, httpx.Client(base_url=url) as api:
        for path in ("/v1/jobs", "/v1/models", "/v1/queues", "/v1/jobs/x/events", "/metrics"):
            reply = api.get(path)
            problem_of(reply, 401)
            assert reply.headers["www-authenticate"] == "Bearer"
        assert api.post("/v1/jobs", json={"prompt": "a"}).status_code == 401
        for wrong in ("Bearer gamma", "Basic YWxwaGE6", "alpha", "Bearer"):
            assert api.get("/v1/jobs", headers={"Authorization": wrong}).status_code == 401
        assert api.get("/v1/jobs?token=alpha").status_code == 401
        for right in ("alpha", "beta"):
            assert api.get("/v1/jobs", headers={"Authorization": f"Bearer {right}"}).status_code == 200
        for path in ("/", "/page/app.js", "/healthz", "/readyz"):
            assert api.get(path).status_code == 200


def test_the_schema_describes_what_is_there(api: httpx.Client) -> None:
    schema = api.get("/openapi.json").json()
    submit = schema["paths"]["/v1/jobs"]["post"]
    assert {"200", "202", "400", "401", "409", "413", "415", "422", "429", "503"} <= submit["responses"].keys()
    body = submit["requestBody"]["content"]["application/json"]
    assert body["schema"]["$ref"].rsplit("/", 1)[-1] in schema["components"]["schemas"]
    for example in body["examples"].values():
        GenerationRequest.model_validate(example["value"])
    assert set(schema["components"]["schemas"]["Job"]["properties"]) == set(Job.model_fields)
    assert "HTTPValidationError" not in api.get("/openapi.json").text
    assert api.get("/docs").status_code == 200


def test_the_page_comes_with_its_policy(api: httpx.Client, settings: Settings) -> None:
    for path, kind in (("/", "text/html"), ("/page/app.js", "javascript"), ("/page/base.css", "text/css")):
        reply = api.get(path)
        assert reply.status_code == 200
        assert kind in reply.headers["content-type"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert f"img-src 'self' data: blob: {settings.s3_endpoint_url}" in reply.headers["content-security-policy"]
    problem_of(api.get("/page/../app.py"), 404)


def test_system_routes(api: httpx.Client) -> None:
    (model,) = api.get("/v1/models").json()["models"]
    assert model["name"] == api.get("/v1/models").json()["default"] == "tiny"
    api.post("/v1/jobs", json={"prompt": "a"})
    (queue,) = api.get("/v1/queues").json()["queues"]
    assert (queue["model"], queue["queued"], queue["running"]) == ("tiny", 1, 0)
    assert queue["oldest_s"] >= 0
    assert api.get("/v1/workers").json() == {"workers": []}
    text = api.get("/metrics").text
    assert 'safelight_jobs{model="tiny",status="queued"} 1.0' in text
    assert 'safelight_http_requests_total{method="POST",route="/v1/jobs",status="202"} 1.0' in text
    assert "safelight_http_request_seconds_bucket" in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=10,
)
requests = st.dictionaries(st.sampled_from([*GenerationRequest.model_fields, "other"]), json_values, max_size=5)
accepted = st.fixed_dictionaries(
    {"prompt": st.text(min_size=1)}, optional={"metadata": st.dictionaries(st.text(), json_values)}
)


#: What JSON readers stumble over, put anywhere into a body that was one.
SPLINTERS = (
    b"\\ud800",
    b"1e999",
    b"NaN",
    b'{"a":',
    b"[[[[",
    b"\0",
    b"\xff",
    b'"prompt":1,',
    b"-",
    b"9" * 400,
    b"\\u0000",
)


def mangled(body: object, at: float, splinter: bytes) -> bytes:
    text = json.dumps(body).encode()
    place = int(at * len(text))
    return text[:place] + splinter + text[place:]


batches = st.fixed_dictionaries({"jobs": st.lists(accepted | requests, max_size=3) | json_values})
bodies = st.one_of(requests, accepted, json_values, batches)
broken = st.binary() | st.builds(mangled, bodies, st.floats(0, 1), st.sampled_from(SPLINTERS))


@hypothesis_settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies | broken, st.sampled_from(["/v1/jobs", "/v1/jobs", "/v1/jobs/batch"]))
def test_no_body_makes_a_5xx(api: httpx.Client, body: object, path: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = api.post(path, content=content, headers=JSON)
    assert reply.status_code in (202, 400, 422), reply.text
    if reply.status_code == 202 and path == "/v1/jobs":
        assert api.get(reply.headers["location"]).json()["request"] == reply.json()["request"]


def test_a_store_that_goes_away_and_comes_back(api: httpx.Client, settings: Settings) -> None:
    assert api.post("/v1/jobs", json={"prompt": "a"}).status_code == 202
    with redis.Redis.from_url(settings.redis_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert api.post("/v1/jobs", json={"prompt": "a"}).status_code == 202
