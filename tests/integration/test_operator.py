"""Dead letters, webhooks that were given up, and drains: by command and over HTTP, on a real Redis."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from api_stub.testing import running_api
from tasks import AsyncClient, Client
from tasks.cli import main
from tasks.errors import UnknownDeadLetter, UnknownWebhook, UnknownWorker
from tasks.job import Job, JobError, JobStatus
from tasks.settings import Settings
from tasks.store import Claimed, Outcome
from tasks.webhook_queue import Refusal, WebhookQueue

WORKER = "gpu-1:77:ab12"
Said = tuple[int, list[str], str]


@pytest.fixture
def plain(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """No object store is needed here."""
    monkeypatch.setenv("SAFELIGHT_REDIS_URL", redis_url)
    return Settings(redis_url=redis_url)


@pytest.fixture
def client(plain: Settings) -> Iterator[Client]:
    with Client(plain) as client:
        yield client


@pytest.fixture
def api(plain: Settings) -> Iterator[httpx.Client]:
    with running_api(plain) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture
def cli(plain: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["safelight", *words])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out.splitlines(), captured.err

    return call


def dead(client: Client, kind: str = "internal", **fields: Any) -> Job:
    job = client.submit({"prompt": "a boat", **fields})
    claimed = client.store.claim(job.id, WORKER, 30)
    assert isinstance(claimed, Claimed)
    error = JobError.model_validate({"type": kind, "message": "it broke", "attempt": 1})
    client.store.finish(job.id, 1, Outcome(JobStatus.FAILED, error=error, traceback="Traceback: line 7"))
    return client.get(job.id)


def given_up(client: Client) -> str:
    job = client.submit({"prompt": "a boat", "webhook_url": "https://example.org/hook"})
    client.abort(job.id)
    queue = WebhookQueue(client._redis)
    queue.bury(queue.due(1)[0], Refusal("https://example.org", 410, "status 410"))
    return job.id


def hints(client: Client) -> int:
    return sum(client._redis.llen(f"safelight.tiny{step}") for step in ("", "\x06\x163", "\x06\x166", "\x06\x169"))  # type: ignore[misc]


class TestCommands:
    def test_a_letter_is_shown_retried_and_gone(self, client: Client, cli: Callable[..., Said]) -> None:
        old = dead(client)
        code, [line], _ = cli("dead-letter", "ls")
        assert (code, line.startswith(old.id), "internal: it broke" in line) == (0, True, True)
        code, lines, _ = cli("dead-letter", "show", old.id)
        assert code == 0
        assert any(f"attempt 1 on {WORKER}" in line for line in lines)
        assert "  | Traceback: line 7" in lines
        before = hints(client)
        code, [line], _ = cli("dead-letter", "retry", old.id, "--json")
        new = json.loads(line)
        assert (code, new["retry_of"], new["status"]) == (0, old.id, "queued")
        assert client.get(new["id"]).request == old.request
        assert hints(client) == before + 1, "its message went out"
        assert cli("dead-letter", "show", old.id)[0] == 1
        assert cli("dead-letter", "ls") == (0, [], "no dead letters\n")

    def test_json_has_tracebacks_in_show_alone(self, client: Client, cli: Callable[..., Said]) -> None:
        old = dead(client)
        [shown] = cli("dead-letter", "show", old.id, "--json")[1]
        assert json.loads(shown)["faults"][0]["traceback"] == "Traceback: line 7"
        [listed] = cli("dead-letter", "ls", "--json")[1]
        assert json.loads(listed)["job"]["error"]["type"] == "internal"
        assert "Traceback" not in listed

    def test_filters_choose_and_all_takes_the_rest(self, client: Client, cli: Callable[..., Said]) -> None:
        lost, broken = dead(client, "worker_lost"), dead(client, "model_error")
        assert [line.split()[0] for line in cli("dead-letter", "ls", "--error-type", "model_error")[1]] == [broken.id]
        assert cli("dead-letter", "ls", "--older-than", "1h")[1] == []
        assert len(cli("dead-letter", "ls", "--newer-than", "1h", "--limit", "1")[1]) == 1
        code, [line], _ = cli("dead-letter", "retry", "--all", "--error-type", "worker_lost")
        assert (code, line.split()[0]) == (0, lost.id)
        code, [line], _ = cli("dead-letter", "purge", "--all", "--model", "tiny", "--json")
        assert (code, json.loads(line)) == (0, {"id": broken.id, "purged": True})
        assert client.get(broken.id).status is JobStatus.FAILED
        assert cli("dead-letter", "purge", "--all") == (0, [], "nothing to do\n")

    def test_one_that_is_gone_holds_up_no_other(self, client: Client, cli: Callable[..., Said]) -> None:
        old = dead(client)
        code, lines, err = cli("dead-letter", "retry", "nobody", old.id)
        assert (code, len(lines)) == (1, 1)
        assert "no dead letter 'nobody'" in err

    @pytest.mark.parametrize(
        "words",
        [
            ["retry"],
            ["retry", "x", "--all"],
            ["retry", "x", "--error-type", "internal"],
            ["purge"],
            ["ls", "--older-than", "soon"],
            ["ls", "--error-type", "bad_luck"],
        ],
    )
    def test_usage(self, cli: Callable[..., Said], words: list[str]) -> None:
        assert cli("dead-letter", *words)[0] == 2

    def test_webhooks(self, client: Client, cli: Callable[..., Said]) -> None:
        first, second = given_up(client), given_up(client)
        lines = cli("webhooks", "ls", "--json")[1]
        assert [(letter["id"], letter["status"]) for letter in map(json.loads, lines)] == [(second, 410), (first, 410)]
        assert "https://example.org  status 410  after 1 tries" in cli("webhooks", "ls")[1][0]
        assert cli("webhooks", "retry", first, "nobody")[0] == 1
        assert [delivery.job_id for delivery in WebhookQueue(client._redis).due(5)] == [first]
        assert cli("webhooks", "purge", "--all")[0] == 0
        assert cli("webhooks", "purge", second)[0] == 1
        assert cli("webhooks", "ls") == (0, [], "no webhook was given up\n")

    def test_drain_all(self, client: Client, cli: Callable[..., Said]) -> None:
        assert cli("drain", "--all", "--wait") == (0, [], "no worker is up\n")
        assert (cli("drain")[0], cli("drain", "x", "--all")[0]) == (2, 2)
        client.store.beat(WORKER, {"name": WORKER}, 30)
        assert cli("drain", "--all")[1] == [f"{WORKER}  asked to drain"]
        assert client.store.beat(WORKER, {}, 30)


class TestHttp:
    def test_letters(self, client: Client, api: httpx.Client) -> None:
        old, other = dead(client), dead(client, "worker_lost")
        listed = api.get("/v1/dead-letters", params={"limit": 1}).json()
        assert [letter["id"] for letter in listed["letters"]] == [other.id]
        rest = api.get("/v1/dead-letters", params={"cursor": listed["cursor"], "error_type": "internal"}).json()
        assert ([letter["id"] for letter in rest["letters"]], rest["cursor"]) == ([old.id], None)
        shown = api.get(f"/v1/dead-letters/{old.id}")
        assert "Traceback" not in shown.text
        [fault] = shown.json()["faults"]
        assert (fault["worker"], fault["type"], fault["attempt"]) == (WORKER, "internal", 1)
        asked = api.get(f"/v1/dead-letters/{old.id}?traceback=true").json()
        assert asked["faults"][0]["traceback"] == "Traceback: line 7"
        assert "Traceback" not in api.get(f"/v1/jobs/{old.id}").text
        again = api.post(f"/v1/dead-letters/{old.id}/retry")
        assert (again.status_code, again.json()["retry_of"]) == (202, old.id)
        assert again.headers["location"] == f"/v1/jobs/{again.json()['id']}"
        assert api.delete(f"/v1/dead-letters/{other.id}").status_code == 204
        for reply in (
            api.get(f"/v1/dead-letters/{old.id}"),
            api.post(f"/v1/dead-letters/{old.id}/retry"),
            api.delete(f"/v1/dead-letters/{other.id}"),
            api.get("/v1/dead-letters/%20"),
        ):
            assert (reply.status_code, reply.json()["type"]) == (404, "urn:safelight:problem:unknown_dead_letter")
        assert api.get(f"/v1/jobs/{old.id}").json()["status"] == "failed"

    def test_a_wrong_query_names_its_parameter(self, api: httpx.Client) -> None:
        for query in (
            "limit=0",
            "error_type=luck",
            "older_than_s=-1",
            "cursor=x",
            "newer_than_s=nan",
            "older_than_s=1.3e308",
        ):
            reply = api.get(f"/v1/dead-letters?{query}")
            assert (reply.status_code, reply.json()["field"]) == (422, query.split("=")[0])

    def test_webhooks(self, client: Client, api: httpx.Client) -> None:
        first, second = given_up(client), given_up(client)
        assert [letter["id"] for letter in api.get("/v1/webhooks").json()["letters"]] == [second, first]
        assert api.post(f"/v1/webhooks/{first}/retry").status_code == 202
        again = api.post(f"/v1/webhooks/{first}/retry")
        assert (again.status_code, again.json()["type"]) == (404, "urn:safelight:problem:unknown_webhook")
        assert api.post("/v1/webhooks/nobody/retry").json()["type"] == "urn:safelight:problem:unknown_job"
        assert [api.delete(f"/v1/webhooks/{second}").status_code for _ in range(2)] == [204, 404]

    def test_drain(self, client: Client, api: httpx.Client) -> None:
        client.store.beat(WORKER, {"name": WORKER}, 30)
        reply = api.post("/v1/workers/gpu-1/drain")
        assert (reply.status_code, reply.json()) == (202, {"workers": [WORKER]})
        assert client.store.beat(WORKER, {"name": WORKER}, 30)
        unknown = api.post("/v1/workers/gpu-2/drain")
        assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:safelight:problem:unknown_worker")
        assert WORKER in unknown.json()["detail"]


def test_both_clients_have_the_same_calls(client: Client, plain: Settings) -> None:
    kept, old, job_id = dead(client), dead(client), given_up(client)
    client.store.beat(WORKER, {"name": WORKER}, 30)

    async def all_of_them() -> None:
        async with AsyncClient(plain) as other:
            assert (await other.dead_letters(error_type="internal")).letters == client.dead_letters().letters
            assert await other.dead_letter(old.id) == client.dead_letter(old.id)
            assert (await other.retry_dead_letter(old.id)).retry_of == old.id
            with pytest.raises(UnknownDeadLetter):
                await other.retry_dead_letter(old.id)
            assert await other.purge_dead_letters([kept.id, old.id]) == 1
            assert await other.webhook_letters() == client.webhook_letters()
            await other.retry_webhook(job_id)
            with pytest.raises(UnknownWebhook):
                await other.retry_webhook(job_id)
            assert await other.purge_webhooks([job_id]) == 0
            assert await other.drain("gpu-1") == client.drain(WORKER) == await other.drain_all() == [WORKER]
            with pytest.raises(UnknownWorker):
                await other.drain("gpu")

    asyncio.run(all_of_them())
