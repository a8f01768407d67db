"""Every metric that we export, once: its name, kind, labels and meaning. docs/observability.md shows the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """`name` is as Prometheus queries it; a histogram adds `_bucket`, `_sum` and `_count`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str


_WORKER = ("worker", "model")
METRICS: tuple[MetricSpec, ...] = (
    MetricSpec("safelight_http_requests_total", "counter", ("method", "route", "status"), "Answered requests."),
    MetricSpec(
        "safelight_http_request_seconds", "histogram", ("method", "route"), "Time to the first byte of the answer."
    ),
    MetricSpec("safelight_store_up", "gauge", (), "1 if Redis answered this scrape."),
    MetricSpec("safelight_workers", "gauge", (), "Workers with a live heartbeat."),
    MetricSpec("safelight_jobs", "gauge", ("model", "status"), "Live jobs: queued and running."),
    MetricSpec("safelight_queue_jobs", "gauge", ("model", "priority"), "Queued jobs."),
    MetricSpec(
        "safelight_queue_oldest_seconds", "gauge", ("model", "priority"), "Age of the oldest job that waits, or 0."
    ),
    MetricSpec(
        "safelight_tenant_rows",
        "gauge",
        ("tenant", "status"),
        "Outputs of live jobs of each tenant of SAFELIGHT_TENANTS, queued and running.",
    ),
    MetricSpec("safelight_jobs_created_total", "counter", ("model",), "Accepted jobs."),
    MetricSpec(
        "safelight_jobs_ended_total",
        "counter",
        ("model", "status", "error_type"),
        "Jobs that ended; aborts are those of status aborted, error_type is empty unless failed.",
    ),
    MetricSpec("safelight_attempts_total", "counter", ("model",), "Claims of a job by a worker."),
    MetricSpec(
        "safelight_retries_total",
        "counter",
        ("model", "error_type"),
        "Attempts that failed, their jobs queued again.",
    ),
    MetricSpec("safelight_attempts_given_back_total", "counter", ("model",), "Attempts that a drain gave back."),
    MetricSpec("safelight_leases_lost_total", "counter", ("model",), "Attempts whose worker stopped renewing."),
    MetricSpec(
        "safelight_stage_seconds",
        "histogram",
        ("model", "stage"),
        "Times of attempts that ended or failed: queue, preprocess, denoise, decode, upload.",
    ),
    MetricSpec(
        "safelight_job_seconds", "histogram", ("model",), "From a job's creation to the end of its last attempt."
    ),
    MetricSpec("safelight_device_seconds_total", "counter", ("model",), "Device time charged to jobs."),
    MetricSpec("safelight_webhooks_waiting", "gauge", (), "Deliveries that are due or wait for their next try."),
    MetricSpec("safelight_webhooks_dead", "gauge", (), "Deliveries that were given up; the newest 10 000 are kept."),
    MetricSpec("safelight_dead_letters", "gauge", (), "Failed jobs that nobody has seen to."),
    MetricSpec("safelight_worker_jobs", "gauge", ("worker", "state"), "Jobs in hand; state is ready or draining."),
    MetricSpec("safelight_worker_rows", "gauge", (*_WORKER, "state"), "Rows in the engine: running or waiting."),
    MetricSpec("safelight_step_seconds", "histogram", _WORKER, "Time of a denoise step of a whole batch or forward."),
    MetricSpec("safelight_batch_rows", "histogram", _WORKER, "Rows that shared a batch or forward."),
    MetricSpec("safelight_rows_done_total", "counter", _WORKER, "Outputs that the engine finished."),
    MetricSpec(
        "safelight_device_memory_used_bytes", "gauge", _WORKER, "Of the model's device, other processes included."
    ),
    MetricSpec("safelight_device_memory_free_bytes", "gauge", _WORKER, "Of the model's device."),
    MetricSpec("safelight_model_loaded", "gauge", _WORKER, "1: in the worker's memory; 0: it is loaded on demand."),
    MetricSpec("safelight_model_loads_total", "counter", _WORKER, "Times that the worker has loaded the model."),
    MetricSpec(
        "safelight_model_need_bytes", "gauge", _WORKER, "Of the device, by the models file or as measured at its load."
    ),
    MetricSpec("safelight_upload_seconds", "histogram", ("worker",), "Time of one try to store one output."),
    MetricSpec(
        "safelight_upload_failures_total",
        "counter",
        ("worker", "outcome"),
        "Tries that failed: outcome is retried, or given_up for the last one.",
    ),
)
BY_NAME = {spec.name: spec for spec in METRICS}
