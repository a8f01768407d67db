"""A job's events as a server-sent stream: resumable, alive while nothing happens, and always closed by `done`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from api_stub.backend import Backend
from tasks.errors import InvalidRequest, SafelightError, StoreUnavailable, UnknownJob
from tasks.event_codec import event_order
from tasks.job import Job
from tasks.store import Event

HEARTBEAT_S = 15.0
RECONNECT_MS = 2_000
#: How often a silent stream, or a long poll, looks whether the process is closing.
SLICE_S = 1.0
START = "0"
_MAX_PART = 2**64 - 1  # of an id of a Redis stream


def resume_point(last_event_id: str | None) -> str:
    """The id after which to go on. Raises `InvalidRequest` for what no event of ours ever carried."""
    if not last_event_id:
        return START
    parts = last_event_id.split("-")
    if len(parts) > 2 or not all(_is_part(part) for part in parts):
        raise InvalidRequest("Last-Event-ID", "is not the id of an event")
    return last_event_id


def _is_part(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _MAX_PART


def frame(event_id: str, kind: str, data: Mapping[str, Any]) -> str:
    """One event on the wire; JSON without line breaks fits into one `data:` line."""
    body = json.dumps(data, separators=(",", ":"))
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {body}\n\n"


async def stream(
    backend: Backend, job: Job, after: str, closing: threading.Event, heartbeat_s: float = HEARTBEAT_S
) -> AsyncIterator[str]:
    """Events after `after`, a comment in each silent `heartbeat_s`, and `done` with the whole job at the end.

    The events of a job that ended long ago are gone; its `done` is then made from the record. A process that is
    closing ends the stream; the reader comes back to another one with the last id it saw.
    """
    yield f"retry: {RECONNECT_MS}\n\n"
    store = backend.client.store
    spoke = time.monotonic()
    try:
        events = await store.events(job.id, after=after)
        async with backend.hub.follow(job.id, events[-1].id if events else after) as follower:
            while not closing.is_set():
                for event in newer(events, after):
                    after = event.id
                    if event.type == "done":
                        yield frame(event.id, "done", (await store.get(job.id)).to_json())
                        return
                    yield frame(event.id, event.type, event.data)
                    spoke = time.monotonic()
                if not events and job.status.is_terminal:
                    yield frame("", "done", job.to_json())
                    return
                is_silent = time.monotonic() - spoke >= heartbeat_s
                if is_silent:
                    yield ": alive\n\n"
                    spoke, job = time.monotonic(), await store.get(job.id)
                events = [] if is_silent else await follower.next(min(SLICE_S, heartbeat_s))
                if is_silent or follower.has_missed():
                    events = await store.events(job.id, after=after)
    except UnknownJob:
        return
    except StoreUnavailable as error:
        # The status line is long gone: say it in a comment; the reader comes back with its last id.
        yield f": {one_line(error)}\n\n"


def newer(events: Sequence[Event], after: str) -> list[Event]:
    """Without those that came before: the store and the hub may both have told an event."""
    return [event for event in events if event_order(event.id) > event_order(after)]


def one_line(error: SafelightError) -> str:
    return " ".join(str(error).split())
