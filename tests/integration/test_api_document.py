"""The OpenAPI document tells the truth: its examples run, its shapes hold, and its page needs no network."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

from api_stub.problems import Problem
from tests.integration.openai_stand import KEY, Stand

METHODS = {"get", "post", "put", "patch", "delete"}
#: What outside programs may rely on.
ROUTES = {
    "POST /v1/jobs", "POST /v1/jobs/batch", "GET /v1/jobs", "GET /v1/jobs/{job_id}", "POST /v1/jobs/{job_id}/abort",
    "POST /v1/jobs/{job_id}/replay", "GET /v1/jobs/{job_id}/events", "GET /v1/jobs/{job_id}/outputs",
    "GET /v1/jobs/{job_id}/outputs/{number}", "GET /v1/models", "GET /v1/models/{name}",
    "GET /v1/workers", "GET /v1/queues",
    "POST /v1/images/generations", "POST /v1/images/edits", "POST /v1/videos", "GET /v1/videos",
    "GET /v1/videos/{video_id}", "DELETE /v1/videos/{video_id}", "GET /v1/videos/{video_id}/content",
    "GET /healthz", "GET /readyz", "GET /metrics",
    # Beyond it.
    "POST /v1/jobs/abort", "GET /v1/jobs/{job_id}/explain", "GET /v1/events", "POST /v1/workers/{name}/drain",
    "GET /v1/dead-letters", "GET /v1/dead-letters/{job_id}", "POST /v1/dead-letters/{job_id}/retry",
    "DELETE /v1/dead-letters/{job_id}", "GET /v1/webhooks", "POST /v1/webhooks/{job_id}/retry",
    "DELETE /v1/webhooks/{job_id}",
}  # fmt: skip


@pytest.fixture
def api(at: Stand) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=at.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30) as client:
        yield client


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in methods.keys() & METHODS:
            yield method.upper(), path, methods[method]


def test_every_example_of_a_body_runs(api: httpx.Client) -> None:
    sent = 0
    for method, path, operation in operations(api.get("/openapi.json").json()):
        for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
            for name, example in content.get("examples", {}).items():
                reply = api.request(method, path, **as_sent(content_type, example["value"]))
                assert reply.is_success, f"{method} {path} {name!r}: {reply.text}"
                assert str(reply.status_code) in operation["responses"]
                sent += 1
    assert sent >= 12


def as_sent(content_type: str, value: dict[str, Any]) -> dict[str, Any]:
    if content_type == "application/json":
        return {"json": value}
    stream = io.BytesIO()
    Image.new("RGB", (96, 96), "red").save(stream, "PNG")
    fields = {name: (None, str(field)) for name, field in value.items()}
    return {"files": {"image": ("hill.png", stream.getvalue()), **fields}}


def test_the_document_has_every_route_and_no_dangling_reference(api: httpx.Client) -> None:
    reply = api.get("/openapi.json")
    document = reply.json()
    assert {f"{method} {path}" for method, path, _ in operations(document)} == ROUTES
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', reply.text))
    assert references <= document["components"]["schemas"].keys()
    assert "$defs" not in reply.text
    for _, path, operation in operations(document):
        schema = "ErrorBody" if path.startswith(("/v1/images", "/v1/videos")) else "Problem"
        refusals = [text for status, text in operation["responses"].items() if status >= "400" and "content" in text]
        assert all(schema in str(refusal) for refusal in refusals), path


def test_every_route_but_the_probes_asks_for_a_key_and_says_so(api: httpx.Client) -> None:
    for method, path, operation in operations(api.get("/openapi.json").json()):
        for wrong in ({"Authorization": ""}, {"Authorization": "Bearer another"}):
            reply = api.request(method, re.sub(r"{\w+}", "x", path), headers=wrong)
            assert (reply.status_code == 401) is ("401" in operation["responses"]), path
            assert (reply.status_code == 401) is (path not in ("/healthz", "/readyz")), path


def test_the_examples_of_a_problem_are_one(api: httpx.Client) -> None:
    properties = api.get("/openapi.json").json()["components"]["schemas"]["Problem"]["properties"]
    example = {name: field["examples"][0] for name, field in properties.items() if "examples" in field}
    assert Problem.model_validate(example).detail.startswith(str(example["field"]))


def test_the_page_of_the_document_needs_no_other_host(api: httpx.Client) -> None:
    page = api.get("/docs")
    assert page.status_code == 200
    assert "script-src 'self';" in page.headers["content-security-policy"]
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(links) == 5
    for link in links:
        assert not link.startswith(("http", "//", "/")), link
        reply = api.get(f"/{link}")
        assert reply.status_code == 200, link
        assert reply.content
    assert b"SwaggerUIBundle" in api.get("/docs/swagger-ui-bundle.js").content
    assert api.get("/docs/__init__.py").status_code == 404


def test_models_as_openai_s_client_reads_them(at: Stand) -> None:
    assert [model.id for model in at.client.models.list()] == ["tiny", "film"]
    assert at.client.models.retrieve("film").object == "model"
    assert httpx.get(f"{at.url}/v1/models/none", headers={"Authorization": f"Bearer {KEY}"}).status_code == 404
