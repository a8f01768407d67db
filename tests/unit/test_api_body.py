"""What becomes of a body: bounds, every wrong field by name, and no input that is a fault of ours."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from api_stub.body import MAX_BATCH, many_requests, one_request, read_json
from api_stub.problems import ProblemError, respond
from tasks.models import load_models
from tasks.request import GenerationRequest
from tasks.settings import Settings

MODELS = load_models(None)
SETTINGS = Settings(s3_bucket="bucket")


def read(
    body: bytes, content_type: str | None = "application/json", *, max_bytes: int = 1_000, chunk: int = 100
) -> Any:
    chunks = [body[start : start + chunk] for start in range(0, len(body), chunk)] or [b""]
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": chunks[taken - 1], "more_body": taken < len(chunks)}

    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    try:
        return asyncio.run(read_json(request, max_bytes))
    finally:
        assert taken * chunk <= max_bytes + chunk, "it read on past the bound"


def refused(data: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        one_request(data, MODELS, SETTINGS)
    assert caught.value.problem.status == 422
    return caught.value


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"]
)
def test_json_is_read(content_type: str) -> None:
    assert read(b'{"prompt": "\xc3\xa9"}', content_type) == {"prompt": "é"}


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/x-www-form-urlencoded", "image/x+json", "json"]
)
def test_anything_else_is_415(content_type: str | None) -> None:
    with pytest.raises(ProblemError) as caught:
        read(b"{}", content_type)
    assert caught.value.problem.status == 415


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"a": NaN}', b"[-Infinity]", b"{} {}"],
    ids=["empty", "cut", "not UTF-8", "NaN", "Infinity", "two"],
)
def test_a_broken_body_is_400(body: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        read(body)
    assert caught.value.problem.status == 400


def test_very_deep_and_very_long_numbers_are_400() -> None:
    for body in (b"[" * 200_000, b'{"seed": ' + b"9" * 5_000 + b"}"):
        with pytest.raises(ProblemError) as caught:
            read(body, max_bytes=10**6, chunk=10**5)
        assert caught.value.problem.status == 400


def test_a_body_past_its_bound_is_413_before_it_is_read_whole() -> None:
    with pytest.raises(ProblemError) as caught:
        read(b" " * 100_000)
    assert caught.value.problem.status == 413


def test_every_wrong_field_is_named() -> None:
    problem = refused({"prompt": "", "height": "tall", "colour": "red", "loras": [{"name": ""}]}).problem
    assert problem.field == "prompt"
    assert [error.field for error in problem.errors or []] == ["prompt", "height", "loras.0.name", "colour"]
    assert (problem.errors or [])[-1].message == "is not a field of a request"


def test_an_unknown_field_is_told_with_the_one_that_was_meant() -> None:
    problem = refused({"text": "a boat", "steps": 20}).problem
    assert problem.detail == "text: is not a field of a request; did you mean prompt?"
    assert [error.field for error in problem.errors or []] == ["text", "steps", "prompt"]


def test_the_limits_of_the_model_are_checked_too() -> None:
    assert refused({"prompt": "a", "width": 97}).problem.field == "width"
    assert refused({"prompt": "a", "model": "none"}).problem.field == "model"


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ({"height": 97, "width": 9_999}, ["height", "width"]),
        ({"height": 97, "width": "wide"}, ["width", "height"]),
        ({"width": 97, "num_frames": 3, "output_format": "mp4"}, ["width", "output_format", "num_frames"]),
        ({"image": "http://a.example/b.png", "webhook_url": "http://10.0.0.1/"}, ["image", "webhook_url"]),
        ({"seed": -1, "model": "none"}, ["seed", "model"]),
    ],
)
def test_two_wrong_fields_are_both_named(data: dict[str, Any], fields: list[str]) -> None:
    problem = refused({"prompt": "a", **data}).problem
    assert [error.field for error in problem.errors or []] == fields


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        "text",
        7,
        {"prompt": "\ud800"},
        {"prompt": "a", "\udfff": 1},
        {"prompt": "a\0"},
        {"prompt": "a", "metadata": {"a": "\ud800"}},
        {"prompt": "a", "metadata": {"\ud800": 1}},
        {"prompt": "a", "seed": 10**400},
        {"prompt": "a", "guidance_scale": float("inf")},
        {"prompt": "a", "metadata": {"a": float("inf")}},
        {"prompt": {"a": []}},
    ],
)
def test_hostile_values_are_refused_in_an_answer_that_can_be_sent(data: Any) -> None:
    sent = respond(refused(data))
    assert json.loads(bytes(sent.body))["status"] == 422


def test_nesting_is_bounded() -> None:
    deep: Any = 1
    for _ in range(70):
        deep = {"a": deep}
    assert refused({"prompt": "a", "metadata": deep}).problem.field == "metadata"
    assert one_request({"prompt": "a", "metadata": {"a": {"b": [1, 2, {"c": None}]}}}, MODELS, SETTINGS).metadata["a"]


@pytest.mark.parametrize(
    "data",
    [
        {"prompt": "a", "loras": [0] * 1_000_000},
        {"prompt": "a", **{f"f{number}": 0 for number in range(300_000)}},
        {"prompt": "a", "loras": [{f"f{number}": 0 for number in range(300_000)}]},
    ],
    ids=["items", "fields", "nested fields"],
)
def test_a_flood_of_wrong_values_is_refused_at_once(data: Any) -> None:
    started = time.perf_counter()
    refused(data)
    assert time.perf_counter() - started < 1


def test_a_batch_is_checked_as_a_whole() -> None:
    with pytest.raises(ProblemError) as caught:
        many_requests({"jobs": [{"prompt": "a"}, {"prompt": "a", "width": 3}, 7]}, MODELS, SETTINGS)
    assert [error.field for error in caught.value.problem.errors or []] == ["jobs.1.width", "jobs.2"]


@pytest.mark.parametrize("data", [[], {}, {"jobs": []}, {"jobs": {}}, {"jobs": [{"prompt": "a"}], "x": 1}, None])
def test_a_batch_is_an_object_with_jobs(data: Any) -> None:
    with pytest.raises(ProblemError) as caught:
        many_requests(data, MODELS, SETTINGS)
    assert caught.value.problem.field == "jobs"


def test_a_batch_has_a_bound() -> None:
    assert len(many_requests({"jobs": [{"prompt": "a"}] * MAX_BATCH}, MODELS, SETTINGS)) == MAX_BATCH
    with pytest.raises(ProblemError):
        many_requests({"jobs": [{"prompt": "a"}] * (MAX_BATCH + 1)}, MODELS, SETTINGS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)
names = st.sampled_from([*GenerationRequest.model_fields, "unknown", ""])


@given(st.dictionaries(names, json_values, max_size=6) | json_values)
def test_any_json_is_a_request_or_a_422(data: Any) -> None:
    outcome: GenerationRequest | ProblemError
    try:
        outcome = one_request(data, MODELS, SETTINGS)
    except ProblemError as error:
        outcome = error
    if isinstance(outcome, ProblemError):
        assert json.loads(bytes(respond(outcome).body))["status"] == 422
