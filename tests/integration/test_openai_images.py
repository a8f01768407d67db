"""OpenAI's own client makes pictures here: plain, streamed, edited, refused, given up on."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from tests.integration.openai_stand import KEY, Stand

AUTH = {"Authorization": f"Bearer {KEY}"}


def png(mode: str, size: tuple[int, int], colour: Any = 0) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, "PNG")
    return stream.getvalue()


def opened(encoded: str | None) -> Image.Image:
    assert encoded
    return Image.open(io.BytesIO(base64.b64decode(encoded)))


def job_of(at: Stand, raw: Any) -> dict[str, Any]:
    job: dict[str, Any] = httpx.get(f"{at.url}/v1/jobs/{raw.headers['x-safelight-job-id']}", headers=AUTH).json()
    return job


def test_pictures_of_every_field(at: Stand) -> None:
    raw = at.client.images.with_raw_response.generate(
        model="tiny",
        prompt="a boat",
        n=2,
        size="128x96",
        response_format="b64_json",
        output_format="webp",
        quality="high",
        background="opaque",
        user="42",
        extra_body={"seed": 7, "num_inference_steps": 3, "priority": 9, "loras": [{"name": "ink", "scale": 0.5}]},
    )
    answer = raw.parse()
    assert answer.data is not None
    assert [(opened(one.b64_json).format, opened(one.b64_json).size, one.url) for one in answer.data] == [
        ("WEBP", (128, 96), None)
    ] * 2
    assert [one.model_extra for one in answer.data] == [{"seed": 7}, {"seed": 8}]
    assert (answer.size, answer.output_format, answer.background) == ("128x96", "webp", "opaque")
    assert raw.headers["x-safelight-ignored"] == "quality"
    job = job_of(at, raw)
    assert answer.created == int(
        time.mktime(time.strptime(job["created_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    )
    request = job["request"]
    assert (request["num_inference_steps"], request["priority"], request["metadata"]) == (3, 9, {"user": "42"})
    assert request["loras"] == [{"name": "ink", "scale": 0.5}]


def test_a_link_a_text_or_both(at: Stand) -> None:
    (link,) = at.client.images.generate(prompt="a boat", response_format="url", size="auto").data or []
    assert link.b64_json is None
    assert link.url is not None
    assert Image.open(io.BytesIO(httpx.get(link.url).content)).size == (96, 96)
    (both,) = at.client.images.generate(prompt="a boat").data or []
    assert httpx.get(both.url or "").content == base64.b64decode(both.b64_json or "")


def test_a_stream_has_previews_and_then_the_pictures(at: Stand) -> None:
    events = list(
        at.client.images.generate(prompt="a boat", stream=True, partial_images=2, n=2, extra_body={"seed": 7})
    )
    *partial, _, _ = events
    done = events[-2:]
    assert {event.type for event in partial} == {"image_generation.partial_image"}
    assert {event.type for event in done} == {"image_generation.completed"}
    # The store keeps the newest preview only, and a quick job may be over before the next look.
    assert [event.partial_image_index for event in partial] in ([0], [0, 1])  # type: ignore[union-attr]
    first = partial[0]
    assert (opened(first.b64_json).format, first.output_format, first.size) == ("JPEG", "jpeg", "24x24")
    assert [opened(event.b64_json).size for event in done] == [(96, 96)] * 2
    assert done[0].usage.total_tokens == 0  # type: ignore[union-attr]
    (alone,) = at.client.images.generate(prompt="a boat", stream=True)
    assert alone.type == "image_generation.completed"


REFUSED: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"model": "dall-e-3"}, 404, "model", "model_not_found"),
    ({"model": "film"}, 400, "model", "invalid_value"),
    ({"size": "97x96"}, 400, "size", "invalid_value"),
    ({"size": "large"}, 400, "size", "invalid_value"),
    ({"n": 17}, 400, "n", "invalid_value"),
    ({"n": 16, "size": "160x160", "extra_body": {"num_outputs": 2}}, 400, "num_outputs", "invalid_value"),
    ({"background": "transparent"}, 400, "background", "invalid_value"),
    ({"output_format": "svg"}, 400, "output_format", "invalid_value"),
    ({"quality": "best"}, 400, "quality", "invalid_value"),
    ({"partial_images": 4, "stream": True}, 400, "partial_images", "invalid_value"),
    ({"prompt": ""}, 400, "prompt", "invalid_value"),
    ({"prompt": openai.omit}, 400, "prompt", "missing_required_parameter"),
    ({"frame_count": 3}, 400, "frame_count", "unknown_parameter"),
    ({"extra_body": {"seed": -1}}, 400, "seed", "invalid_value"),
    ({"extra_body": {"width": 96}, "size": "96x96"}, 400, "width", "invalid_value"),
    ({"extra_body": {"webhook_url": "http://10.0.0.1/"}}, 400, "webhook_url", "invalid_value"),
    ({"extra_headers": {"Idempotency-Key": "k" * 256}}, 400, "Idempotency-Key", "invalid_value"),
    ({"extra_headers": {"Authorization": "Bearer wrong"}}, 401, None, "invalid_api_key"),
    ({"extra_headers": {"Content-Type": "text/plain"}}, 415, None, "unsupported_media_type"),
]


def test_what_is_wrong_is_named(at: Stand) -> None:
    for fields, status, param, code in REFUSED:
        with pytest.raises(openai.APIStatusError) as caught:
            at.client.images.generate(**{"prompt": "a boat", **fields})
        error = caught.value
        assert (error.status_code, error.param, error.code) == (status, param, code), (fields, error.body)
        assert error.type == "invalid_request_error"
    assert httpx.get(f"{at.url}/v1/jobs", headers=AUTH).json()["jobs"] == []


def test_errors_have_openai_s_shape_here_and_are_problems_elsewhere(at: Stand) -> None:
    for reply in (
        httpx.post(f"{at.url}/v1/images/variations", headers=AUTH),
        httpx.get(f"{at.url}/v1/images/generations", headers=AUTH),
        httpx.post(
            f"{at.url}/v1/images/generations", headers={**AUTH, "Content-Type": "application/json"}, content="{"
        ),
        httpx.post(f"{at.url}/v1/images/generations", headers=AUTH, json=[]),
        httpx.get(f"{at.url}/v1/videos"),
    ):
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}, reply.text
        assert reply.status_code in (400, 401, 404, 405)
    assert httpx.get(f"{at.url}/v1/jobs/unknown", headers=AUTH).headers["content-type"] == "application/problem+json"


FAILURES = [
    ("invalid_image", 400, "invalid_image_file"),
    ("model_error", 500, "model_error"),
    ("out_of_memory", 500, "out_of_memory"),
    ("deadline_exceeded", 504, "deadline_exceeded"),
]


def test_a_failed_job_is_an_error_that_is_not_tried_again(at: Stand) -> None:
    for kind, status, code in FAILURES:
        with pytest.raises(openai.APIStatusError) as caught:
            at.client.with_options(max_retries=3).images.generate(prompt=f"fail {kind}")
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert caught.value.response.headers["x-safelight-job-id"] in str(caught.value)
    with pytest.raises(openai.APIError) as streamed:
        list(at.client.images.generate(prompt="fail model_error", stream=True))
    assert streamed.value.code == "model_error"
    jobs = httpx.get(f"{at.url}/v1/jobs", headers=AUTH).json()["jobs"]
    assert len(jobs) == len(FAILURES) + 1, "each was made once"


def test_the_same_key_is_the_same_job(at: Stand) -> None:
    headers = {"Idempotency-Key": "order-17"}
    first, again = (
        at.client.images.with_raw_response.generate(prompt="a boat", extra_headers=headers) for _ in range(2)
    )
    assert first.headers["x-safelight-job-id"] == again.headers["x-safelight-job-id"]
    with pytest.raises(openai.ConflictError) as caught:
        at.client.with_options(max_retries=3).images.generate(prompt="a car", extra_headers=headers)
    assert caught.value.code == "idempotency_conflict"


def test_the_wait_is_bounded_and_the_job_goes_on(narrow: Stand) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        narrow.client.with_options(max_retries=3).images.generate(prompt="a slow boat")
    assert (caught.value.status_code, caught.value.code) == (504, "timeout")
    job_id = caught.value.response.headers["x-safelight-job-id"]
    assert job_id in str(caught.value)
    narrow.worker.hold.set()
    job = httpx.get(f"{narrow.url}/v1/jobs/{job_id}?wait=20", headers=AUTH, timeout=30).json()
    assert job["status"] == "succeeded"
    assert len(httpx.get(f"{narrow.url}/v1/jobs", headers=AUTH).json()["jobs"]) == 1, "it was not tried again"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_caller_that_leaves_takes_its_job_along_unless_it_can_come_back(at: Stand, is_stream: bool) -> None:
    leaving = at.client.with_options(timeout=0.5)
    prompts = {"a slow boat": {}, "a slow car": {"Idempotency-Key": "k"}}
    for prompt, headers in prompts.items():
        with pytest.raises(Exception, match="timed out"):  # a stream raises the HTTP library's own
            list(leaving.images.generate(prompt=prompt, stream=is_stream, extra_headers=headers))
    jobs = httpx.get(f"{at.url}/v1/jobs", headers=AUTH).json()["jobs"]
    ids = {job["request"]["prompt"]: job["id"] for job in jobs}
    gone = httpx.get(f"{at.url}/v1/jobs/{ids['a slow boat']}?wait=20", headers=AUTH, timeout=30).json()
    kept = httpx.get(f"{at.url}/v1/jobs/{ids['a slow car']}", headers=AUTH).json()
    assert (gone["status"], kept["status"]) == ("aborted", "running")
    at.worker.hold.set()
    back = at.client.images.generate(prompt="a slow car", extra_headers={"Idempotency-Key": "k"})
    assert back.data


def test_an_aborted_job_is_a_conflict(at: Stand) -> None:
    caught: list[Exception] = []

    def call() -> None:
        try:
            at.client.with_options(max_retries=3).images.generate(prompt="a slow boat")
        except Exception as error:
            caught.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    while not (jobs := httpx.get(f"{at.url}/v1/jobs?status=running", headers=AUTH).json()["jobs"]):
        pass
    httpx.post(f"{at.url}/v1/jobs/{jobs[0]['id']}/abort", headers=AUTH)
    caller.join()
    (error,) = caught
    assert isinstance(error, openai.ConflictError)
    assert error.code == "job_aborted"


def test_an_edit_keeps_its_files_and_turns_the_mask_round(at: Stand) -> None:
    image, mask = png("RGB", (128, 96), "red"), Image.new("RGBA", (128, 96), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (0, 0, 64, 96))
    stream = io.BytesIO()
    mask.save(stream, "PNG")
    raw = at.client.images.with_raw_response.edit(
        image=image,
        mask=stream.getvalue(),
        prompt="a boat",
        n=2,
        size="96x96",
        extra_body={"seed": 7, "loras": [{"name": "ink", "scale": 0.5}], "metadata": {"order": "17"}, "exact": True},
    )
    assert len(raw.parse().data or []) == 2
    job = job_of(at, raw)
    request = job["request"]
    assert request["image"].startswith(f"s3://{at.settings.s3_bucket}/inputs/")
    assert (request["seed"], request["loras"], request["exact"]) == (7, [{"name": "ink", "scale": 0.5}], True)
    assert request["metadata"] == {"order": "17"}
    white = at.worker.seen[job["id"], "mask_image"]
    assert (white.mode, white.getpixel((10, 10)), white.getpixel((100, 10))) == ("L", 255, 0)
    assert at.worker.seen[job["id"], "image"].getpixel((0, 0)) == (255, 0, 0)
    again = at.client.images.with_raw_response.edit(image=[image], prompt="a boat", stream=False)
    assert job_of(at, again)["request"]["image"] == request["image"], "the same bytes are the same input"
    assert again.parse().size == "112x80", "the shape of the picture, at the size that the model draws best"
    events = list(at.client.images.edit(image=image, prompt="a boat", stream=True, partial_images=1))
    assert [event.type for event in events] == ["image_edit.partial_image", "image_edit.completed"]


def test_bad_pictures_are_refused_by_name(at: Stand) -> None:
    good = png("RGB", (96, 96))
    cases: list[tuple[dict[str, Any], int, str, str]] = [
        ({"image": b"not a picture"}, 400, "image", "invalid_image_file"),
        ({"image": good[:60]}, 400, "image", "invalid_image_file"),
        ({"image": good, "mask": png("RGB", (96, 96))}, 400, "mask", "invalid_image_file"),
        ({"image": good, "mask": png("RGBA", (96, 96), (0, 0, 0, 255))}, 400, "mask", "invalid_image_file"),
        ({"image": good, "mask": png("RGBA", (64, 96))}, 400, "mask", "invalid_image_file"),
        ({"image": [good, good]}, 400, "image", "invalid_value"),
        ({"image": good, "markup": good}, 400, "markup", "unknown_parameter"),
        ({"image": good, "extra_body": {"strength": 2}}, 400, "strength", "invalid_value"),
        ({"image": good, "extra_body": {"image": "s3://a/b"}}, 400, "image", "invalid_value"),
        ({"image": good, "model": "gpt-image-2"}, 404, "model", "model_not_found"),
    ]
    for fields, status, param, code in cases:
        with pytest.raises(openai.APIStatusError) as caught:
            at.client.images.edit(prompt="a boat", **fields)
        assert (caught.value.status_code, caught.value.param, caught.value.code) == (status, param, code), param
    missing = httpx.post(f"{at.url}/v1/images/edits", headers=AUTH, files={"prompt": (None, "a boat")})
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "image")
    plain = httpx.post(f"{at.url}/v1/images/edits", headers=AUTH, json={"prompt": "a boat"})
    assert plain.status_code == 415


def test_forms_are_bounded_and_never_a_fault_of_ours(narrow: Stand) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        narrow.client.images.edit(prompt="a boat", image=b"x" * 40_000)
    assert (caught.value.status_code, caught.value.code) == (413, "body_too_large")
    edits = f"{narrow.url}/v1/images/edits"
    kind = {**AUTH, "Content-Type": "multipart/form-data; boundary=b"}
    for body in (
        b"",
        b"--b",
        b"--b\r\n\r\n\r\n--b--",
        b"\xff" * 100,
        b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
    ):
        assert httpx.post(edits, headers=kind, content=body).status_code == 400
    assert httpx.post(edits, headers={**AUTH, "Content-Type": "multipart/form-data"}).status_code == 400
    for name in ("loras[]", "loras[0][name]", "metadata[a][b]", "prompt[]", "[", "size[x]", "n[]"):
        reply = httpx.post(edits, headers=AUTH, files=[("prompt", (None, "a")), (name, (None, "1"))])
        assert reply.status_code == 400, name
    many = httpx.post(edits, headers=AUTH, files=[(f"f{number}", (None, "1")) for number in range(300)])
    assert (many.status_code, many.json()["error"]["code"]) == (400, "invalid_body")


def test_a_form_may_hold_json(at: Stand) -> None:
    files = {
        "image": ("a.png", png("RGB", (96, 96))),
        "prompt": (None, "a boat"),
        "loras": (None, json.dumps([{"name": "ink"}])),
    }
    reply = httpx.post(f"{at.url}/v1/images/edits", headers=AUTH, files=files, timeout=30)
    assert reply.status_code == 200, reply.text
    job = httpx.get(f"{at.url}/v1/jobs/{reply.headers['x-safelight-job-id']}", headers=AUTH).json()
    assert job["request"]["loras"] == [{"name": "ink", "scale": 1.0}]
