"""One trace from the HTTP request to the stored object, over real Redis and S3, as OpenTelemetry's SDK collects it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from api_stub.testing import running_api
from tasks.artifacts import ArtifactStore
from tasks.client import Client
from tasks.models import load_models
from tasks.otel import OtelTracing, otel_tracing
from tasks.settings import Settings
from tasks.submit_task import submit_message
from tasks.trace_context import joining, traceparent_here, valid_traceparent
from tasks.tracing import NO_TRACING, tracing_from_environment
from tests.integration.test_api_jobs import picture
from tests.integration.worker_here import WorkerHere, worker_here

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ROOT = Path(__file__).parents[2]


class Collected:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OtelTracing(provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans if span.name == name]
        return span

    def children(self, name: str) -> list[str]:
        """Names of the spans below the one, in the order of their starts."""
        parent = self.one(name).context.span_id
        below = [span for span in self.spans if span.parent is not None and span.parent.span_id == parent]
        return [span.name for span in sorted(below, key=lambda span: span.start_time or 0)]


@contextmanager
def traced(settings: Settings) -> Iterator[tuple[Collected, httpx.Client, WorkerHere]]:
    found = Collected()
    with running_api(settings, found.tracing) as url, httpx.Client(base_url=url, timeout=20) as http:
        with worker_here(settings, found.tracing) as here:
            yield found, http, here


def test_one_trace_from_the_request_to_the_object(settings: Settings) -> None:
    with traced(settings) as (found, http, here):
        store = ArtifactStore(settings)
        store.ensure_bucket()
        uri = _put(store, picture())
        wish = {"prompt": "a tree", "num_outputs": 2, "image": uri, "strength": 0.5, "num_inference_steps": 4}
        job_id = http.post("/v1/jobs", json=wish, headers={"traceparent": CALLER}).json()["id"]
        assert here.run(job_id) == "succeeded"
        job = http.get(f"/v1/jobs/{job_id}").json()
        mine = [span for span in found.spans if not span.name.startswith("GET")]
        assert {f"{span.context.trace_id:032x}" for span in mine} == {CALLER.split("-")[1]}
        request = found.one("POST /v1/jobs")
        assert request.parent is not None and f"{request.parent.span_id:016x}" == CALLER.split("-")[2]
        assert found.children("POST /v1/jobs") == ["submit"]
        assert set(found.children("submit")) == {"queue wait", "attempt"}
        stages = ["wait for batch", "encode prompt", "denoise", "decode"]
        assert found.children("attempt") == ["fetch inputs", *stages, "encode", "upload", "upload", "finish"]
        attributes = dict(found.one("attempt").attributes or {})
        assert attributes["safelight.job_id"] == job_id
        assert attributes["safelight.outcome"] == "succeeded"
        denoise = dict(found.one("denoise").attributes or {})
        assert (denoise["safelight.steps"], denoise["safelight.batch_rows_mean"]) == (2, 2)
        assert denoise["safelight.device_seconds"] == pytest.approx(job["metrics"]["device_seconds"], abs=1e-3)
        assert all(span.status.status_code is StatusCode.UNSET for span in mine)
        wait, attempt = found.one("queue wait"), found.one("attempt")
        assert wait.start_time == _ns(job["created_at"]) and wait.end_time == _ns(job["started_at"])
        for span in found.spans:
            if span.parent is not None and span.parent.span_id == attempt.context.span_id:
                assert attempt.start_time <= span.start_time <= span.end_time <= attempt.end_time  # type: ignore[operator]


def _put(store: ArtifactStore, body: bytes) -> str:
    return store.put("in.png", body, "image/png", hashlib.sha256(body).hexdigest())


def _ns(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    return round(moment.timestamp() * 1000) * 1_000_000


def test_errors_and_further_attempts_are_in_the_same_trace(settings: Settings) -> None:
    with traced(settings) as (found, http, here):
        job_id = http.post("/v1/jobs", json={"prompt": "broken"}).json()["id"]
        store = here.client.store
        claimed = store.claim(job_id, "other", 30)
        store.release(job_id, claimed.attempt)  # type: ignore[union-attr]
        assert here.run(job_id) == "failed"
        attempt, denoise = found.one("attempt"), found.one("denoise")
        assert dict(attempt.attributes or {})["safelight.attempt"] == 2
        for span in (attempt, denoise):
            assert span.status.status_code is StatusCode.ERROR
            assert "model_error" in (span.status.description or "")
        assert len({span.context.trace_id for span in found.spans}) == 1
        refused = http.post("/v1/jobs", json={"prompt": ""})
        assert refused.status_code == 422
        http.get("/healthz")
        assert not [span for span in found.spans if "healthz" in span.name]


def test_a_traceparent_passes_through_an_api_without_tracing(settings: Settings) -> None:
    found = Collected()
    with running_api(settings) as url, worker_here(settings, found.tracing) as here:
        for header in (CALLER, "00-" + "0" * 32 + "-b7ad6b7169203331-01"):
            reply = httpx.post(f"{url}/v1/jobs", json={"prompt": "a"}, headers={"traceparent": header})
            assert here.run(reply.json()["id"]) == "succeeded"
        traces = {f"{s.context.trace_id:032x}" for s in found.spans if s.name == "attempt"}
        assert len(traces) == 2 and CALLER.split("-")[1] in traces


def test_producers_join_the_span_that_is_open_where_they_call(settings: Settings) -> None:
    found = Collected()
    with Client(settings) as client, found.tracing.span("checkout"):
        here = traceparent_here()
        assert client.store.claim(client.submit(prompt="a").id, "w", 9).trace == here  # type: ignore[union-attr]
        assert here is not None and here.split("-")[1] == f"{_current_trace():032x}"
    with Client(settings) as client:
        assert client.store.claim(client.submit(prompt="a").id, "w", 9).trace is None  # type: ignore[union-attr]
        with joining(CALLER):
            submit_message("t1", {"prompt": "a"}, client.store, load_models(None), client._hinter)
        assert client.store.claim("t1", "w", 9).trace == CALLER  # type: ignore[union-attr]


def _current_trace() -> int:
    from opentelemetry.trace import get_current_span

    return get_current_span().get_span_context().trace_id


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (CALLER, CALLER),
        (CALLER.replace("00-", "cc-", 1) + "-what-comes-later", CALLER.replace("00-", "cc-", 1)),
        (CALLER + "-x", None),
        (CALLER.upper(), None),
        ("ff" + CALLER[2:], None),
        (CALLER.replace("b7ad6b7169203331", "0" * 16), None),
        ("", None),
        (None, None),
    ],
)
def test_traceparents(text: str | None, kept: str | None) -> None:
    assert valid_traceparent(text) == kept


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, {"OTEL_SERVICE_NAME": "s"}],
)
def test_nothing_is_imported_unless_it_is_asked_for(variables: dict[str, str]) -> None:
    code = "import sys, tasks.client, worker.generate; from tasks.tracing import *; "
    code += "t = tracing_from_environment('x'); print(t is NO_TRACING, 'tasks.otel' in sys.modules)"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=clean | variables)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_the_standard_variables_set_it_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    tracing = tracing_from_environment("safelight-test")
    assert isinstance(tracing, OtelTracing)
    assert tracing._provider.resource.attributes["service.name"] == "safelight-test"
    tracing.close()
    monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
    named = otel_tracing("safelight-test")
    assert isinstance(named, OtelTracing) and named._provider.resource.attributes["service.name"] == "theirs"
    named.close()
    monkeypatch.setitem(sys.modules, "tasks.otel", None)
    assert tracing_from_environment("x") is NO_TRACING
    assert "safelight[otel]" in caplog.text
