"""Plays a web backend against the API: submits, is refused once, reads events, aborts two jobs, fetches pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tasks.cli.demo.plan import WRONG_REQUEST, Planned, Role
from tasks.errors import StoreUnavailable

_EVENTS_S = 60.0


@dataclass
class Submitted:
    """The demo's jobs as the API answered; `ids` in the plan's order."""

    ids: list[str] = field(default_factory=list)
    #: Status and body of the answer to the wrong request.
    refusal: tuple[int, dict[str, Any]] = (0, {})
    #: The last step that was seen of the long job before its abort.
    step_at_abort: int = 0
    #: Status of the waiting job in the moment of its abort.
    status_before_abort: str = ""


def open_http(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=30.0, trust_env=False)


def submit_all(http: httpx.Client, plan: Sequence[Planned]) -> Submitted:
    """Send everything, and abort the last job while it waits. Raises `StoreUnavailable` if the API says no."""
    done = Submitted()
    refused = http.post("/v1/jobs", json=dict(WRONG_REQUEST))
    done.refusal = (refused.status_code, refused.json())
    for planned in plan:
        job_id = _accepted(http.post("/v1/jobs", json=dict(planned.request)))["id"]
        done.ids.append(job_id)
        if planned.role is Role.ABORT_QUEUED:
            done.status_before_abort = _accepted(http.get(f"/v1/jobs/{job_id}"))["status"]
            _accepted(http.post(f"/v1/jobs/{job_id}/abort"))
    return done


def abort_while_running(http: httpx.Client, job_id: str) -> int:
    """Abort the job at the first sign of a denoising step; that step, or 0 if it ended before."""
    with http.stream("GET", f"/v1/jobs/{job_id}/events", timeout=_EVENTS_S) as reply:
        for kind, data in _events(reply.iter_lines()):
            if kind == "done":
                return 0
            if kind == "progress" and data.get("step", 0) >= 1:
                _accepted(http.post(f"/v1/jobs/{job_id}/abort"))
                return int(data["step"])
    return 0


def fetch(http: httpx.Client, job_id: str, number: int) -> bytes:
    """The bytes of an output, by way of the presigned URL that the API redirects to."""
    reply = http.get(f"/v1/jobs/{job_id}/outputs/{number}", follow_redirects=True)
    if reply.status_code != 200:
        raise StoreUnavailable(f"output {number} of job {job_id}: HTTP {reply.status_code} from {reply.url.host}")
    return reply.content


def _accepted(reply: httpx.Response) -> dict[str, Any]:
    if reply.status_code not in (200, 202):
        raise StoreUnavailable(f"the API answered {reply.status_code}: {reply.text[:300]}")
    body: dict[str, Any] = reply.json()
    return body


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Server-sent events of one `data` line each, as this API writes them."""
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))
