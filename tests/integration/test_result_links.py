"""Links to outputs as a client gives them: they work, and cost no client of the object store each."""

from __future__ import annotations

import asyncio
import hashlib

import httpx
import pytest

from tasks import AsyncClient, Client
from tasks.artifacts import ArtifactStore
from tasks.job import JobStatus, Output
from tasks.settings import Settings
from tasks.store import Claimed, Outcome

BODY = b"a picture"


@pytest.fixture
def job_id(settings: Settings) -> str:
    """A job that has succeeded with two outputs."""
    store, digest = ArtifactStore(settings), hashlib.sha256(BODY).hexdigest()
    store.ensure_bucket()
    uris = [store.put(f"{name}.png", BODY, "image/png", digest) for name in ("a", "b")]
    outputs = [Output(uri=u, content_type="image/png", seed=1, size_bytes=len(BODY), sha256=digest) for u in uris]
    with Client(settings) as client:
        job = client.submit(prompt="x")
        claimed = client.store.claim(job.id, "w", 30)
        assert isinstance(claimed, Claimed)
        client.store.finish(job.id, claimed.attempt, Outcome(JobStatus.SUCCEEDED, outputs=outputs))
        assert client.result_urls(client.submit(prompt="waits").id) == []
    return job.id


@pytest.fixture
def num_stores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each client of the object store that is made."""
    made, make = [], ArtifactStore.__init__

    def counted(self: ArtifactStore, *args: object) -> None:
        made.append(1)
        make(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ArtifactStore, "__init__", counted)
    return made


def test_many_links_take_one_client_of_the_object_store(settings: Settings, job_id: str, num_stores: list[int]) -> None:
    with Client(settings) as client:
        links = [link for _ in range(3) for link in client.result_urls(job_id)]
    assert len(links) == 6 and len(num_stores) == 1
    assert {httpx.get(link).content for link in links} == {BODY}


def test_also_for_callers_that_come_at_once(settings: Settings, job_id: str, num_stores: list[int]) -> None:
    async def ask() -> list[list[str]]:
        async with AsyncClient(settings) as client:
            return await asyncio.gather(*(client.result_urls(job_id) for _ in range(5)))

    links = [link for some in asyncio.run(ask()) for link in some]
    assert len(links) == 10 and len(num_stores) == 1
    assert {httpx.get(link).content for link in links} == {BODY}
