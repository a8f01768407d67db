"""OpenAI's own client makes videos here: created, polled, listed, fetched without its key, deleted."""

from __future__ import annotations

import io
from typing import Any

import httpx
import openai
import pytest
import redis
from PIL import Image

from tests.integration.openai_stand import KEY, Stand

AUTH = {"Authorization": f"Bearer {KEY}"}
pytestmark = pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning")


def test_create_and_poll_and_download_without_the_key(at: Stand) -> None:
    seen: list[Any] = []
    http = openai.DefaultHttpxClient(event_hooks={"request": [seen.append]})
    with at.client.with_options(http_client=http) as client:
        video = client.videos.create_and_poll(
            model="film",
            prompt="a fish",
            seconds="4",
            size="64x96",
            poll_interval_ms=20,
            extra_body={"seed": 7},  # type: ignore[arg-type]
        )
        assert (video.status, video.progress, video.object, video.error) == ("completed", 100, "video", None)
        assert (video.model, video.size, video.seconds, video.prompt) == ("film", "64x96", "4", "a fish")
        assert video.completed_at and video.expires_at == video.completed_at + 7 * 86_400
        seen.clear()
        assert client.videos.download_content(video.id).read() == b"frames"
    ours, theirs = seen
    assert ours.headers["authorization"] == f"Bearer {KEY}"
    assert str(theirs.url).startswith(str(at.settings.s3_endpoint_url))
    assert "authorization" not in theirs.headers
    job = httpx.get(f"{at.url}/v1/jobs/{video.id}", headers=AUTH).json()["request"]
    assert (job["num_frames"], job["fps"], job["seed"], job["output_format"]) == (33, 8.0, 7, "mp4")


def test_a_picture_to_begin_with(at: Stand) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (192, 128), "red").save(stream, "PNG")
    video = at.client.videos.create_and_poll(prompt="a fish", input_reference=stream.getvalue(), poll_interval_ms=20)
    assert (video.status, video.size, video.seconds) == ("completed", "96x64", "2")
    assert at.worker.seen[video.id, "image"].getpixel((0, 0)) == (255, 0, 0)
    uri = httpx.get(f"{at.url}/v1/jobs/{video.id}", headers=AUTH).json()["request"]["image"]
    for reference in ({"image_url": uri}, uri):
        reply = httpx.post(f"{at.url}/v1/videos", headers=AUTH, json={"prompt": "a", "input_reference": reference})
        assert reply.status_code == 200, reply.text
        made = httpx.get(f"{at.url}/v1/jobs/{reply.json()['id']}", headers=AUTH).json()
        assert made["request"]["image"] == uri
    by_form = at.client.videos.create(prompt="a", extra_body={"input_reference": {"image_url": uri}})
    assert by_form.status in ("queued", "in_progress", "completed")


REFUSED: list[tuple[dict[str, Any], int, str, str]] = [
    ({"model": "sora-2"}, 404, "model", "model_not_found"),
    ({"model": "tiny"}, 400, "model", "invalid_value"),
    ({"seconds": "12"}, 400, "seconds", "invalid_value"),
    ({"seconds": "long"}, 400, "seconds", "invalid_value"),
    ({"size": "720x1280"}, 400, "size", "invalid_value"),
    ({"input_reference": b"not a picture"}, 400, "input_reference", "invalid_image_file"),
    ({"extra_body": {"input_reference": {"file_id": "f-1"}}}, 400, "input_reference", "invalid_value"),
    (
        {"extra_body": {"input_reference": {"image_url": "http://a/b"}}},
        400,
        "input_reference",
        "invalid_value",
    ),
    ({"extra_body": {"n": 2}}, 400, "n", "invalid_value"),
    ({"seconds": "2", "extra_body": {"num_frames": 9}}, 400, "seconds", "invalid_value"),
    ({"seconds": "2", "extra_body": {"fps": "fast"}}, 400, "fps", "invalid_value"),
    ({"extra_body": {"remix": 1}}, 400, "remix", "unknown_parameter"),
]


def test_what_is_wrong_is_named(at: Stand) -> None:
    for fields, status, param, code in REFUSED:
        with pytest.raises(openai.APIStatusError) as caught:
            at.client.videos.create(prompt="a fish", **fields)
        assert (caught.value.status_code, caught.value.param, caught.value.code) == (status, param, code), fields
    assert list(at.client.videos.list()) == []


def test_a_running_video_is_polled_and_deleted(at: Stand) -> None:
    raw = at.client.videos.with_raw_response.create(prompt="a slow fish")
    video = raw.parse()
    assert raw.headers["x-safelight-job-id"] == video.id
    assert 250 <= int(raw.headers["openai-poll-after-ms"]) <= 5_000
    while (now := at.client.videos.retrieve(video.id)).progress < 90:
        assert now.status in ("queued", "in_progress")
    with pytest.raises(openai.NotFoundError, match="in_progress") as early:
        at.client.videos.download_content(video.id)
    assert early.value.code == "video_not_ready"
    gone = at.client.videos.delete(video.id)
    assert (gone.id, gone.deleted, gone.object) == (video.id, True, "video.deleted")
    with pytest.raises(openai.NotFoundError):
        at.client.videos.retrieve(video.id)
    job = httpx.get(f"{at.url}/v1/jobs/{video.id}?wait=20", headers=AUTH, timeout=30).json()
    assert job["status"] == "aborted", "the record tells it for as long as it is kept"


def test_an_aborted_and_a_failed_video(at: Stand) -> None:
    slow = at.client.videos.create(prompt="a slow fish")
    httpx.post(f"{at.url}/v1/jobs/{slow.id}/abort", headers=AUTH)
    ended = at.client.videos.poll(slow.id, poll_interval_ms=20)
    assert (ended.status, ended.completed_at) == ("failed", None)
    assert ended.error and ended.error.code == "aborted"
    failed = at.client.videos.create_and_poll(prompt="fail out_of_memory", poll_interval_ms=20)
    assert failed.error and (failed.error.code, failed.error.message) == ("out_of_memory", "image: it went wrong")


def test_delete_removes_the_file(at: Stand) -> None:
    video = at.client.videos.create_and_poll(prompt="a fish", poll_interval_ms=20)
    url = httpx.get(f"{at.url}/v1/videos/{video.id}/content", headers=AUTH).headers["location"]
    assert httpx.get(url).status_code == 200
    at.client.videos.delete(video.id)
    assert httpx.get(url).status_code == 404
    with pytest.raises(openai.NotFoundError):
        at.client.videos.delete(video.id)


def test_the_list_has_what_was_made_here_and_pages(at: Stand) -> None:
    httpx.post(f"{at.url}/v1/jobs", headers=AUTH, json={"prompt": "elsewhere", "model": "film"})
    ids = [at.client.videos.create(prompt=f"a fish {number}").id for number in range(5)]
    page = at.client.videos.list(limit=2)
    assert ([video.id for video in page.data], page.has_more) == (ids[:2:-1], True)
    assert [video.id for video in at.client.videos.list(limit=2)] == ids[::-1], "the client follows has_more"
    assert [video.id for video in at.client.videos.list(order="asc", after=ids[2])] == ids[3:]
    for job_id in ("unknown", httpx.get(f"{at.url}/v1/jobs", headers=AUTH).json()["jobs"][-1]["id"]):
        with pytest.raises(openai.NotFoundError):
            at.client.videos.retrieve(job_id)
    with pytest.raises(openai.BadRequestError) as caught:
        at.client.videos.list(after="unknown")
    assert caught.value.param == "after"
    reply = httpx.get(f"{at.url}/v1/videos?limit=0", headers=AUTH)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "limit")


def test_expired_records_leave_the_list(at: Stand) -> None:

    video = at.client.videos.create(prompt="a fish")
    kept = at.client.videos.create(prompt="a slow fish")
    with redis.Redis.from_url(at.settings.redis_url) as client:
        client.delete(f"{at.settings.key_prefix}job:{video.id}")
        assert [one.id for one in at.client.videos.list()] == [kept.id]
        assert client.zcard(f"{at.settings.key_prefix}videos") == 1
        client.delete(f"{at.settings.key_prefix}job:{kept.id}")
        newest = at.client.videos.create(prompt="a fish")
        assert client.zrange(f"{at.settings.key_prefix}videos", 0, -1) == [newest.id.encode()]


def test_the_same_key_is_the_same_video(at: Stand) -> None:
    headers = {"Idempotency-Key": "order-17"}
    first, again = (at.client.videos.create(prompt="a fish", extra_headers=headers) for _ in range(2))
    assert first.id == again.id
    assert len(list(at.client.videos.list())) == 1


def test_other_variants_are_refused(at: Stand) -> None:
    video = at.client.videos.create(prompt="a fish")
    with pytest.raises(openai.BadRequestError) as caught:
        at.client.videos.download_content(video.id, variant="thumbnail")
    assert caught.value.param == "variant"
