"""What is exported after real work is the catalogue; docs, dashboard and alerts name nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api_stub.testing import running_api
from engine import DeviceMemory, DiffusionEngine
from tasks.local.process import free_port
from tasks.metric_catalogue import METRICS
from tasks.settings import Settings
from tests.integration.worker_here import worker_here
from worker.announce import serve_metrics

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy/grafana/safelight.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
ROW = re.compile(r"^\| `(safelight_[a-z0-9_]+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"\bsafelight_[a-z0-9_]+")
BOUNDED = {
    "tenant",
    "method",
    "route",
    "status",
    "model",
    "priority",
    "error_type",
    "stage",
    "worker",
    "state",
    "outcome",
    "le",
}


def families(text: str) -> dict[str, Any]:
    """By the names that Prometheus queries."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = family
    return found


def value(found: dict[str, Any], name: str, **labels: str) -> float:
    family = found[re.sub("_(bucket|sum|count)$", "", name)]
    [sample] = [s for s in family.samples if s.name == name and labels.items() <= s.labels.items()]
    return float(sample.value)


@pytest.fixture
def scraped(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The API's metrics after a day's work in small, the worker's own, and the text of both."""
    monkeypatch.setattr(DiffusionEngine, "device_memory", lambda self: DeviceMemory(used_bytes=3, free_bytes=7))
    (tmp_path / "tenants.toml").write_text("[default]\n", "utf-8")
    settings = settings.model_copy(update={"tenants": tmp_path / "tenants.toml"})
    with running_api(settings) as url, httpx.Client(base_url=url) as http, worker_here(settings) as here:

        def submit(prompt: str, **fields: object) -> str:
            reply = http.post("/v1/jobs", json={"prompt": prompt, "num_inference_steps": 3, **fields})
            return str(reply.json()["id"])

        assert here.run(submit("good", num_outputs=2)) == "succeeded"
        assert here.run(submit("broken")) == "failed"
        http.post(f"/v1/jobs/{submit('gone')}/abort")
        store = here.client.store
        claimed = store.claim(submit("given back", priority=9), "other", 30)
        store.release(claimed.job.id, claimed.attempt)  # type: ignore[union-attr]
        submit("told", webhook_url="https://example.org/hook")
        store.abort(submit("told too", webhook_url="https://example.org/hook"))
        port = free_port()
        stop = serve_metrics(port, here.announcer)
        try:
            own = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        finally:
            stop()
        text = http.get("/metrics").text
        return families(text), families(own), text + own


def test_all_of_the_catalogue_is_exported_and_nothing_else(
    scraped: tuple[dict[str, Any], dict[str, Any], str],
) -> None:
    api, worker, text = scraped
    ours = {name: family for name, family in api.items() if not name.endswith("_created")}
    assert set(ours) == {spec.name for spec in METRICS}
    for spec in METRICS:
        family = ours[spec.name]
        assert family.type == spec.kind
        names = {name for sample in family.samples for name in sample.labels} - {"le"}
        assert names <= set(spec.labels) <= BOUNDED
        has_happened = spec.name not in ("safelight_retries_total", "safelight_leases_lost_total")
        has_happened &= spec.name != "safelight_upload_failures_total"
        assert not has_happened or family.samples, spec.name
    assert set(worker) < set(ours)
    assert not re.search(r'"(01[0-9A-Z]{24})"|s3://', text), "no label holds an id or a key"

    check_figures(api, worker)


def check_figures(api: dict[str, Any], worker: dict[str, Any]) -> None:
    ended = "safelight_jobs_ended_total"
    assert value(api, "safelight_jobs_created_total", model="tiny") == 6
    assert value(api, "safelight_attempts_total", model="tiny") == 3
    assert value(api, ended, status="succeeded", error_type="") == 1
    assert value(api, ended, status="failed", error_type="model_error") == 1
    assert value(api, ended, status="aborted") == 2
    assert value(api, "safelight_attempts_given_back_total") == 1
    assert value(api, "safelight_queue_jobs", priority="9") == 1
    assert value(api, "safelight_queue_jobs", priority="5") == 1
    assert value(api, "safelight_queue_jobs", priority="0") == 0
    assert value(api, "safelight_webhooks_waiting") == 1
    assert value(api, "safelight_dead_letters") == 1
    assert value(api, "safelight_stage_seconds_count", stage="denoise") == 2, "that of a failed job too"
    assert value(api, "safelight_stage_seconds_count", stage="upload") == 1
    assert value(api, "safelight_device_seconds_total", model="tiny") > 0
    assert value(api, "safelight_worker_jobs", worker="here", state="ready") == 0
    assert value(api, "safelight_device_memory_free_bytes", worker="here") == 7
    for found in (api, worker):
        assert value(found, "safelight_upload_seconds_count", worker="here") == 2
        assert value(found, "safelight_step_seconds_count", worker="here", model="tiny") == 3
        assert value(found, "safelight_batch_rows_sum") == 3
        assert value(found, "safelight_batch_rows_bucket", le="1.0") == 1
        assert value(found, "safelight_rows_done_total") == 2


def test_the_page_of_the_docs_is_the_catalogue() -> None:
    text = (ROOT / "docs/observability.md").read_text("utf-8")
    told = {name: (kind, labels, meaning) for name, kind, labels, meaning in ROW.findall(text)}
    assert told == {
        spec.name: (spec.kind, ", ".join(f"`{label}`" for label in spec.labels) or "–", spec.meaning)
        for spec in METRICS
    }


def expressions(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["expr"]] if isinstance(value.get("expr"), str) else []
        return own + [found for child in value.values() for found in expressions(child)]
    return [found for child in value for found in expressions(child)] if isinstance(value, list) else []


def queryable() -> set[str]:
    names = set()
    for spec in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if spec.kind == "histogram" else ("",)
        names |= {spec.name + suffix for suffix in suffixes}
    return names


@pytest.mark.parametrize("path", [DASHBOARD, ALERTS], ids=lambda path: path.name)
def test_dashboard_and_alerts_use_what_there_is(path: Path) -> None:
    text = path.read_text("utf-8")
    found = expressions(json.loads(text) if path.suffix == ".json" else yaml.safe_load(text))
    assert len(found) >= 10
    used = {name for expression in found for name in NAME.findall(expression)}
    assert used and used <= queryable()
    for expression in found:
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_alerts_say_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
