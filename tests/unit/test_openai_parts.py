"""The pure parts of OpenAI's routes: sizes, seconds, errors, forms, the video object."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_stub.openai import errors, fields, images, videos
from api_stub.openai.fields import frames, size_like
from api_stub.openai.forms import _put
from api_stub.openai.schema import ImageFields, VideoFields
from api_stub.openai.video_object import poll_after_ms, video_of
from api_stub.problems import ProblemError
from tasks.errors import InvalidRequest
from tasks.job import Job, JobError, JobStatus, Progress
from tasks.models import BUNDLED, ModelDefaults, Models, ModelSpec
from tasks.request import GenerationRequest
from tasks.resolve import resolve
from tasks.settings import Settings

SDXL = ModelSpec(name="xl", source="a/b", defaults=ModelDefaults(height=1024, width=1024))
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def job(status: JobStatus = JobStatus.RUNNING, fraction: float = 0.0, eta_s: float | None = None, **fields: Any) -> Job:
    request = GenerationRequest(prompt="a fish", model="film", width=96, height=64, **fields)
    progress = Progress(fraction=fraction, eta_s=eta_s)
    finished = START + timedelta(seconds=9) if status.is_terminal else None
    return Job(id="a", status=status, request=request, progress=progress, created_at=START, finished_at=finished)


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(4000, 3000, (1184, 888)), (64, 64, (1024, 1024)), (3000, 100, (2048, 184)), (1, 10_000, (64, 2048))],
)
def test_an_edit_has_the_shape_of_its_picture(width: int, height: int, expected: tuple[int, int]) -> None:
    assert tuple(size_like(width, height, SDXL).values()) == expected


@given(st.integers(1, 8_000), st.integers(1, 8_000))
def test_that_size_is_one_that_the_model_takes(width: int, height: int) -> None:
    limits = BUNDLED.limits
    for side in size_like(width, height, BUNDLED).values():
        assert limits.min_size <= side <= limits.max_size
        assert side % limits.size_multiple == 0


@pytest.mark.parametrize(("seconds", "fps"), [(4, 16), (5, 24), (6, 8), (12, 30)])
def test_seconds_come_back_as_they_were_asked_for(seconds: float, fps: float) -> None:
    assert video_of(job(**frames(seconds, {"fps": fps}, SDXL)), 60).seconds == f"{seconds:g}"


@pytest.mark.parametrize(
    ("num_frames", "fps", "shown"),
    [(81, 16.0, "5"), (80, 16.0, "5"), (17, 8.0, "2"), (1, 8.0, "0.12"), (20, 8.0, "2.5")],
)
def test_lengths_of_clips(num_frames: int, fps: float, shown: str) -> None:
    assert video_of(job(num_frames=num_frames, fps=fps), 60).seconds == shown


def test_the_statuses_of_a_video() -> None:
    expected = {
        "queued": "queued",
        "running": "in_progress",
        "succeeded": "completed",
        "failed": "failed",
        "aborted": "failed",
    }
    assert {status: video_of(job(status), 60).status for status in JobStatus} == expected
    assert video_of(job(fraction=0.999), 60).progress == 99, "a hundred is for what is stored"
    done = video_of(job(JobStatus.SUCCEEDED), 60)
    assert (done.progress, done.completed_at, done.expires_at) == (100, 1769860809, 1769860869)
    aborted = video_of(job(JobStatus.ABORTED), 60).error
    assert aborted and aborted.code == "aborted"
    assert [poll_after_ms(job(eta_s=eta_s)) for eta_s in (None, 0.01, 2, 900)] == [1_000, 250, 2_000, 5_000]


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("unavailable", 503, "server_error"),
        ("queue_full", 429, "rate_limit_error"),
        ("not_found", 404, "invalid_request_error"),
    ],
)
def test_problems_in_openai_s_words(kind: str, status: int, expected: str) -> None:
    told = errors.translate(ProblemError(status, kind, "why", headers={"Retry-After": "2"}))
    assert (told.status, told.detail.type, told.detail.message) == (status, expected, "why")
    assert told.headers == {"Retry-After": "2"}


def test_several_wrong_fields_are_counted() -> None:
    told = errors.wrong_field(InvalidRequest("size", "97 is odd"), 3)
    assert (told.status, told.detail.param, str(told)) == (400, "size", "size: 97 is odd (and 2 more)")


def test_who_speaks_openai() -> None:
    assert errors.speaks("/v1/images") and errors.speaks("/v1/videos/a/content")
    assert not errors.speaks("/v1/imagesque") and not errors.speaks("/v1/jobs")


def test_the_job_s_failure_names_openai_s_field() -> None:
    failed = job(JobStatus.FAILED).model_copy(
        update={"error": JobError(type="invalid_image", message="mask_image: is torn")}
    )
    told = errors.of_job(failed)
    assert (told.status, told.detail.param, told.headers["X-Safelight-Job-Id"]) == (400, "mask", "a")


def test_a_list_of_objects_comes_by_columns() -> None:
    found: dict[str, Any] = {}
    for column, texts in (("name", "ab"), ("scale", "12")):
        for text in texts:
            _put(found, f"loras[][{column}]", text)
    assert found == {"loras": [{"name": "a", "scale": "1"}, {"name": "b", "scale": "2"}]}


def check_refusal(error: errors.OpenAIError) -> None:
    assert 400 <= error.status < 500
    assert json.loads(bytes(errors.respond(error).body))["error"]["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
FILM = ModelSpec(name="film", source="a/b", modality="video", defaults=ModelDefaults(num_frames=17, fps=8))
STAND_IN: Any = SimpleNamespace(models=Models((BUNDLED, FILM)), settings=Settings(s3_bucket="bucket"))
image_names = st.sampled_from([*ImageFields.model_fields, *GenerationRequest.model_fields, "other"])
video_names = st.sampled_from([*VideoFields.model_fields, *GenerationRequest.model_fields, "other", "n"])


@given(st.dictionaries(image_names, json_values, max_size=5))
def test_any_fields_are_a_wish_for_pictures_or_a_refusal(data: dict[str, Any]) -> None:
    given_fields = fields.given({"prompt": "a", **data}, is_form=False)
    try:
        own = fields.parse(ImageFields, given_fields)
        spec = fields.model_for(own.model, "image", STAND_IN.models)
        wish = images._wish(STAND_IN, "image_generation", own, spec, fields.sides(own.size))
    except errors.OpenAIError as error:
        check_refusal(error)
    else:
        resolve(wish.request, STAND_IN.models)


@given(st.dictionaries(video_names, json_values, max_size=5))
def test_any_fields_are_a_wish_for_a_video_or_a_refusal(data: dict[str, Any]) -> None:
    given_fields = fields.given({"prompt": "a", **data}, is_form=False)
    try:
        own = fields.parse(VideoFields, given_fields)
        spec = fields.model_for(own.model, "video", STAND_IN.models)
        wanted = videos._wanted(own, spec, fields.sides(own.size))
        resolve(fields.checked(wanted, STAND_IN.models, STAND_IN.settings, videos._names(own)), STAND_IN.models)
    except errors.OpenAIError as error:
        check_refusal(error)
