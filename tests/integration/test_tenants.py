"""Tenants over HTTP: whose key submitted is whose share and whose limit, on every route that makes a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import Celery
from pydantic import SecretStr

from api_stub.serve import _probe
from api_stub.testing import running_api
from tasks.client import Client
from tasks.errors import ConfigError, InvalidRequest
from tasks.hints import Hinter
from tasks.job import JobStatus
from tasks.quotas import Limits, Quotas, Share, load_quotas
from tasks.settings import Settings
from tasks.store import Claimed
from tasks.submit_task import register_submit, submit_message
from tests.contract.stores import failed
from worker.node import Node

FILE = """
[default]
max_queued_rows = 100
[acme]
weight = 3
max_queued_rows = 4
[groups]
max_queued_rows = 6
"""


@pytest.fixture
def shared(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "tenants.toml").write_text(FILE, "utf-8")
    keys = SecretStr("acme:one,web:two")
    return settings.model_copy(update={"tenants": tmp_path / "tenants.toml", "api_keys": keys})


class Caller:
    def __init__(self, base: str, key: str) -> None:
        self._http = httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"})

    def post(self, path: str, body: object = None) -> httpx.Response:
        return self._http.post(path, json=body)

    def get(self, path: str) -> Any:
        reply = self._http.get(path)
        return reply.json() if reply.headers["content-type"].startswith("application/json") else reply.text


def refusal(reply: httpx.Response) -> str:
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) > 0
    return str(reply.json())


def test_two_keys_share_by_weight_within_their_limits(shared: Settings) -> None:
    with running_api(shared) as url, Client(shared) as inside:
        acme, web = Caller(url, "one"), Caller(url, "two")
        first = acme.post("/v1/jobs", {"prompt": "a", "num_outputs": 2})
        assert (first.status_code, first.json()["tenant"]) == (202, "acme")
        assert acme.post("/v1/jobs/batch", {"jobs": [{"prompt": "b"}]}).json()["jobs"][0]["tenant"] == "acme"
        assert acme.post(f"/v1/jobs/{first.json()['id']}/replay").status_code == 429, "two more would be five"
        assert "tenant acme" in refusal(acme.post("/v1/jobs", {"prompt": "a", "num_outputs": 2}))
        assert acme.post("/v1/jobs", {"prompt": "a", "num_outputs": 5}).json()["field"] == "num_outputs"
        assert web.post(f"/v1/jobs/{first.json()['id']}/replay").json()["tenant"] == "web", "whoever asks pays"
        assert web.post("/v1/jobs", {"prompt": "a", "group": "g", "num_outputs": 6}).status_code == 202
        assert "group g" in refusal(web.post("/v1/jobs", {"prompt": "a", "group": "g"}))
        assert "tenant acme" in str(acme.post("/v1/images/generations", {"prompt": "a", "n": 2}).json())
        told = {one["tenant"]: one for one in web.get("/v1/queues")["tenants"]}
        assert (told["acme"]["queued_rows"], told["acme"]["weight"], told["acme"]["max_queued_rows"]) == (3, 3, 4)
        assert (told["web"]["queued_rows"], told["web"]["max_queued_rows"]) == (8, 100)
        metrics = web.get("/metrics")
        assert 'safelight_tenant_rows{status="queued",tenant="acme"} 3.0' in metrics
        assert 'tenant="web"' not in metrics, "as many labels as the file has tenants"
        claimed = inside.store.take("tiny", "any", "w", 30)
        assert isinstance(claimed, Claimed) and claimed.job.tenant == "acme"
        inside.store.finish(claimed.job.id, claimed.attempt, failed())
        again = web.post(f"/v1/dead-letters/{claimed.job.id}/retry").json()
        assert (again["tenant"], again["retry_of"]) == ("web", claimed.job.id)


def test_a_trusted_producer_says_for_whom(shared: Settings) -> None:
    with Client(shared, tenant="acme") as client:
        assert [client.submit(prompt="a").tenant, client.submit(prompt="a", tenant="web").tenant] == ["acme", "web"]
        assert [job.tenant for job in client.submit_many([{"prompt": "a"}])] == ["acme"]
        assert client.get(client.submit(prompt="a").id).tenant == "acme"
        with pytest.raises(InvalidRequest, match="tenant"):
            client.submit(prompt="a", tenant="a b")
    with pytest.raises(InvalidRequest, match="tenant"):
        Client(shared, tenant="")


def test_a_message_says_it_in_a_header(shared: Settings) -> None:
    with Client(shared) as client:
        hinter = Hinter(shared)
        app = Celery("test", set_as_current=False)
        register_submit(app, client.store, client.models, hinter)
        for task_id, headers in (("told", {"tenant": "acme"}), ("untold", {}), ("wrong", {"tenant": "a b"})):
            app.tasks["safelight.submit"].apply(kwargs={"prompt": "a"}, task_id=task_id, headers=headers)
        assert [client.get(task_id).tenant for task_id in ("told", "untold", "wrong")] == ["acme", "default", "default"]
        assert client.get("wrong").status is JobStatus.FAILED
        fields = {"prompt": "a", "num_outputs": 5}
        large = submit_message("large", fields, client.store, client.models, hinter, tenant="acme")
        assert large is not None and large.error is not None and "tenant acme" in large.error.message
        hinter.close()


def test_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(FILE, "utf-8")
    quotas = load_quotas(tmp_path / "t.toml")
    assert quotas.of("acme") == Share(weight=3, max_queued_rows=4)
    assert quotas.of("anybody") == quotas.of("default") == Share(max_queued_rows=100)
    assert quotas.groups == Limits(max_queued_rows=6)
    assert (load_quotas(None), Quotas().text, quotas.limits_running) == (Quotas(), "", False)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[acme]\nweight = 0", "acme.weight"),
        ("[acme]\nwait = 3", "acme.wait"),
        ("[groups]\nweight = 3", "groups.weight"),
        ("[default]\nmax_running_rows = 0", "default.max_running_rows"),
        ("acme = 3", "acme"),
        ('["a b"]', "a b"),
        ("[acme", "not TOML"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "t.toml").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=named) as caught:
        load_quotas(tmp_path / "t.toml")
    assert "SAFELIGHT_TENANTS" in str(caught.value)


def test_api_and_worker_do_not_start_with_a_file_that_is_not_there(settings: Settings, tmp_path: Path) -> None:
    wrong = settings.model_copy(update={"tenants": tmp_path / "absent.toml"})
    for start in (_probe, Node, Client):
        with pytest.raises(ConfigError, match=r"SAFELIGHT_TENANTS: cannot read .*absent.toml"):
            start(wrong)
