"""Jobs over HTTP: a real server, Redis and S3. The worker's part is played by calls of the store."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator

import httpx
import pytest
from PIL import Image

from api_stub.testing import running_api
from tasks.artifacts import ArtifactStore, object_key
from tasks.client import Client
from tasks.job import JobMetrics, JobStatus, Output, Progress
from tasks.settings import Settings
from tasks.store import Claimed, Outcome, Written

TREE = {"prompt": "a tree on a hill", "seed": 7}


@pytest.fixture
def api(settings: Settings) -> Iterator[httpx.Client]:
    with running_api(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture
def backend(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


def claim(backend: Client, job_id: str) -> int:
    claimed = backend.store.claim(job_id, "test", 30)
    assert isinstance(claimed, Claimed)
    return claimed.attempt


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (96, 96), "#a03020").save(file, "png")
    return file.getvalue()


def finish(backend: Client, settings: Settings, job_id: str) -> Output:
    """Run the job to its end, with one picture stored."""
    attempt = claim(backend, job_id)
    store = ArtifactStore(settings)
    store.ensure_bucket()
    body = picture()
    digest = hashlib.sha256(body).hexdigest()
    uri = store.put(object_key("", "", job_id, attempt, 0, "png"), body, "image/png", digest)
    output = Output(uri=uri, content_type="image/png", width=96, height=96, seed=7, size_bytes=len(body), sha256=digest)
    outcome = Outcome(JobStatus.SUCCEEDED, outputs=[output], metrics=JobMetrics(total_ms=5))
    assert backend.store.finish(job_id, attempt, outcome) is Written.OK
    return output


def test_submit_answers_the_resolved_job_and_where_it_is(api: httpx.Client) -> None:
    reply = api.post("/v1/jobs", json={"prompt": "a tree"})
    assert reply.status_code == 202
    job = reply.json()
    assert reply.headers["location"] == f"/v1/jobs/{job['id']}"
    assert job["status"] == "queued"
    assert job["request"]["model"] == "tiny"
    assert isinstance(job["request"]["seed"], int)
    assert job["created_at"].endswith("Z")
    seen = api.get(reply.headers["location"])
    assert seen.status_code == 200
    assert seen.json()["id"] == job["id"]
    assert seen.json()["progress"]["queue_position"] == 0


def test_the_same_key_and_body_is_the_same_job(api: httpx.Client) -> None:
    headers = {"Idempotency-Key": "order-17"}
    first = api.post("/v1/jobs", json={"prompt": "a", "width": 96}, headers=headers)
    again = api.post("/v1/jobs", json={"width": 96, "prompt": "a"}, headers=headers)
    other = api.post("/v1/jobs", json={"prompt": "b"}, headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 409)
    assert first.json()["id"] == again.json()["id"]
    assert first.headers["location"] == again.headers["location"]
    assert other.json()["type"].endswith("idempotency_conflict")
    assert len(api.get("/v1/jobs").json()["jobs"]) == 1


def test_a_key_must_be_printable_and_short(api: httpx.Client) -> None:
    for key in ("", "k" * 256, "a\tb"):
        reply = api.post("/v1/jobs", json=TREE, headers={"Idempotency-Key": key})
        assert (reply.status_code, reply.json()["field"]) == (422, "Idempotency-Key")


def test_a_batch_is_all_or_none(api: httpx.Client) -> None:
    refused = api.post("/v1/jobs/batch", json={"jobs": [TREE, {"prompt": "a", "width": 1}]})
    assert (refused.status_code, refused.json()["field"]) == (422, "jobs.1.width")
    assert api.get("/v1/jobs").json()["jobs"] == []
    accepted = api.post("/v1/jobs/batch", json={"jobs": [{"prompt": f"tree {number}"} for number in range(250)]})
    assert accepted.status_code == 202
    prompts = [job["request"]["prompt"] for job in accepted.json()["jobs"]]
    assert prompts == [f"tree {number}" for number in range(250)]


def test_the_list_is_newest_first_and_pages(api: httpx.Client) -> None:
    ids = [api.post("/v1/jobs", json=TREE | {"group": "g" if number % 2 else "h"}).json()["id"] for number in range(5)]
    page = api.get("/v1/jobs", params={"limit": 3}).json()
    rest = api.get("/v1/jobs", params={"limit": 3, "cursor": page["cursor"]}).json()
    assert [job["id"] for job in page["jobs"] + rest["jobs"]] == ids[::-1]
    assert rest["cursor"] is None
    api.post(f"/v1/jobs/{ids[1]}/abort")
    group = api.get("/v1/jobs", params={"group": "g", "status": "queued"}).json()["jobs"]
    assert [job["id"] for job in group] == [ids[3]]


def test_a_wrong_query_names_its_parameter(api: httpx.Client) -> None:
    for query in ("limit=0", "limit=x", "status=done", "cursor=%00", "cursor=x", "group="):
        reply = api.get(f"/v1/jobs?{query}")
        assert (reply.status_code, reply.json()["field"]) == (422, query.split("=")[0])


def test_wait_returns_at_the_end_or_when_the_time_is_over(
    api: httpx.Client, backend: Client, settings: Settings
) -> None:
    job_id = api.post("/v1/jobs", json=TREE).json()["id"]
    assert api.get(f"/v1/jobs/{job_id}?wait=0.2").json()["status"] == "queued"
    output = finish(backend, settings, job_id)
    job = api.get(f"/v1/jobs/{job_id}?wait=30").json()
    assert job["status"] == "succeeded"
    assert job["outputs"][0]["uri"] == output.uri
    for wrong in ("-1", "nan", "inf", "soon"):
        assert api.get(f"/v1/jobs/{job_id}?wait={wrong}").status_code == 422
    assert api.get(f"/v1/jobs/{job_id}?wait=1e9").status_code == 200


def test_abort_of_a_queued_a_running_and_an_ended_job(api: httpx.Client, backend: Client, settings: Settings) -> None:
    queued, running, ended = (api.post("/v1/jobs", json=TREE).json()["id"] for _ in range(3))
    claim(backend, running)
    finish(backend, settings, ended)
    first = api.post(f"/v1/jobs/{queued}/abort")
    assert (first.status_code, first.json()["status"]) == (202, "aborted")
    again = api.post(f"/v1/jobs/{queued}/abort")
    assert (again.status_code, again.json()) == (200, first.json())
    wish = api.post(f"/v1/jobs/{running}/abort")
    assert (wish.status_code, wish.json()["status"]) == (202, "running")
    assert backend.store.aborts_wanted([running]) == {running}
    late = api.post(f"/v1/jobs/{ended}/abort")
    assert (late.status_code, late.json()["status"]) == (200, "succeeded")
    assert api.post("/v1/jobs/unknown/abort").status_code == 404


def test_replay_is_a_new_job_of_the_same_resolved_request(api: httpx.Client) -> None:
    first = api.post("/v1/jobs", json={"prompt": "a tree"}).json()
    reply = api.post(f"/v1/jobs/{first['id']}/replay")
    assert reply.status_code == 202
    assert reply.json()["id"] != first["id"]
    assert reply.headers["location"].endswith(reply.json()["id"])
    assert reply.json()["request"] == first["request"]
    assert api.post("/v1/jobs/unknown/replay").status_code == 404


def test_outputs_redirect_to_a_link_that_works(api: httpx.Client, backend: Client, settings: Settings) -> None:
    job_id = api.post("/v1/jobs", json=TREE).json()["id"]
    early = api.get(f"/v1/jobs/{job_id}/outputs/0")
    assert early.status_code == 404
    assert "it is queued" in early.json()["detail"]
    finish(backend, settings, job_id)
    reply = api.get(f"/v1/jobs/{job_id}/outputs/0")
    assert reply.status_code == 307
    assert httpx.get(reply.headers["location"]).content == picture()
    for number, status in (("1", 404), ("-1", 404), ("9" * 30, 404), ("x", 422)):
        assert api.get(f"/v1/jobs/{job_id}/outputs/{number}").status_code == status
    assert api.get("/v1/jobs/unknown/outputs/0").status_code == 404


def test_links_to_see_and_to_download(api: httpx.Client, backend: Client, settings: Settings) -> None:
    job_id = api.post("/v1/jobs", json=TREE).json()["id"]
    assert api.get(f"/v1/jobs/{job_id}/outputs").json()["outputs"] == []
    finish(backend, settings, job_id)
    (link,) = api.get(f"/v1/jobs/{job_id}/outputs").json()["outputs"]
    assert httpx.get(link["url"]).content == picture()
    download = httpx.get(link["download_url"])
    assert download.headers["content-disposition"] == f'attachment; filename="safelight-{job_id}-0.png"'


def test_progress_is_in_the_record(api: httpx.Client, backend: Client) -> None:
    job_id = api.post("/v1/jobs", json=TREE).json()["id"]
    attempt = claim(backend, job_id)
    backend.store.report({(job_id, attempt): Progress(stage="denoising", step=3, num_steps=20, fraction=0.2)})
    job = api.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["attempt"], job["worker"]) == ("running", 1, "test")
    assert job["progress"]["step"] == 3
