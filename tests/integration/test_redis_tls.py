"""TLS to Redis: what works, and the sentence for each thing that may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from tasks import AsyncClient, Client
from tasks.errors import StoreUnavailable
from tasks.local.servers import RedisServer
from tests.tls_proxy import Papers, make_papers, tls_proxy


@dataclass(frozen=True)
class Secured:
    papers: Papers
    port: int

    def url(self, parameters: str | None = None, *, host: str = "127.0.0.1") -> str:
        return f"rediss://{host}:{self.port}/0?{self.papers.parameters if parameters is None else parameters}"


@pytest.fixture(scope="module")
def secured(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    papers = make_papers(tmp_path_factory.mktemp("papers"))
    with tls_proxy(papers, redis_server.port) as port:
        yield Secured(papers, port)


def test_a_job_and_its_message_go_through_it(secured: Secured, redis_url: str) -> None:
    with Client(redis_url=secured.url()) as client, redis.Redis.from_url(redis_url) as behind:
        job = client.submit(prompt="x")
        assert client.get(job.id).status == "queued"
        assert behind.llen("safelight.tiny\x06\x163") == 1

    async def get() -> str:
        async with AsyncClient(redis_url=secured.url()) as client:
            return (await client.get(job.id)).id

    assert asyncio.run(get()) == job.id


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("", "is not trusted .*ssl_ca_certs"),
        ("ssl_ca_certs={other_ca}&ssl_certfile={client}", "is not trusted .*ssl_ca_certs"),
        ("ssl_ca_certs={ca}", "wants a client's certificate.* ssl_certfile"),
        ("ssl_ca_certs={ca}&ssl_certfile={other_client}", "does not accept our(s| certificate)"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said(secured: Secured, parameters: str, words: str) -> None:
    url = secured.url(parameters.format(**vars(secured.papers)))
    with Client(redis_url=url) as client, pytest.raises(StoreUnavailable, match=words) as caught:
        client.get("x")
    assert f"127.0.0.1:{secured.port} over TLS" in str(caught.value)


def test_a_certificate_for_another_name_is_refused_unless_told_so(secured: Secured, redis_url: str) -> None:
    with Client(redis_url=secured.url(host="localhost")) as client:
        with pytest.raises(StoreUnavailable, match="is for another name"):
            client.get("x")
    url = secured.url(host="localhost") + "&ssl_check_hostname=false"
    with Client(redis_url=url) as client:
        assert client.submit(prompt="x").status == "queued"


def test_a_clear_connection_to_a_tls_port_says_how_to_begin(secured: Secured) -> None:
    with Client(redis_url=f"redis://127.0.0.1:{secured.port}/0") as client:
        with pytest.raises(StoreUnavailable, match="rediss://"):
            client.get("x")


def test_a_file_that_is_no_certificate_is_named(secured: Secured, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing", "utf-8")
    with pytest.raises(StoreUnavailable, match=r"cannot be used .*ssl_ca_certs"):
        with Client(redis_url=secured.url(f"ssl_ca_certs={empty}")) as client:
            client.get("x")
