"""Events of a job as its stream holds them, and those that it does not hold, made up from the record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tasks.job import Job
from tasks.store import Event


def decode_events(reply: Any) -> list[Event]:
    """From XREAD of one stream."""
    return [event for _, event in decode_streams(reply)]


def decode_streams(reply: Any) -> list[tuple[str, Event]]:
    """From XREAD, in the shape of either protocol version: each event with the key of its stream."""
    streams = [(key, found[0]) for key, found in reply.items()] if isinstance(reply, dict) else reply or []
    return [
        (key, Event(event_id, fields["type"], json.loads(fields["data"])))
        for key, entries in streams
        for event_id, fields in entries
        if fields
    ]


#: What `unwritten` needs of a record.
EVENT_FIELDS = ("done", "status", "attempt", "worker", "created")


def unwritten(record: Sequence[str | None], after: str) -> list[Event]:
    """The event after `after` that no stream holds; from a record's `EVENT_FIELDS`.

    `done` of a job whose stream has expired, or `queued` of one that was never claimed and has no stream yet.
    """
    done, status, attempt, worker, created = record
    if done is not None and event_order(done) > event_order(after):
        data = {"status": status, "attempt": int(attempt or 0)}
        return [Event(done, "done", data if worker is None else {**data, "worker": worker})]
    if status == "queued" and attempt == "0" and event_order(first_event_id(created)) > event_order(after):
        return [Event(first_event_id(created), "status", {"status": "queued", "attempt": 0})]
    return []


def first_event(job: Job, after: str) -> list[Event]:
    """`queued` of a job that was never claimed, if it comes after `after`: the same event as `unwritten` gives."""
    created_ms = round(job.created_at.timestamp() * 1000)
    return unwritten((None, job.status, str(job.attempt), None, str(created_ms)), after)


def first_event_id(created_ms: object) -> str:
    """That of the event of a job's creation; `emit_queued` in `store.lua` gives it the same."""
    return f"{created_ms}-0"


def event_order(event_id: str) -> tuple[int, int]:
    """Ids of a stream's events in their order."""
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number or 0)
