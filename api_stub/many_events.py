"""The events of many jobs in one stream: a browser opens six connections to a host, and a page has more cards."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from api_stub import events as sse
from api_stub.backend import Backend, backend_of
from api_stub.brief import brief
from api_stub.openapi import MANY_EVENTS, problems
from tasks.errors import InvalidRequest, StoreUnavailable, UnknownJob
from tasks.event_codec import first_event
from tasks.ids import is_job_id
from tasks.store import Event

MAX_IDS = 100
router = APIRouter(prefix="/v1/events", tags=["jobs"])
Uses = Annotated[Backend, Depends(backend_of)]


def cursors(ids: str, last_event_id: str | None) -> dict[str, str]:
    """The event after which each job goes on. Raises `InvalidRequest` for what is not `ID` or `ID@EVENT`."""
    found = {}
    for entry in filter(None, ids.split(",")):
        job_id, _, after = entry.partition("@")
        if not is_job_id(job_id):
            raise InvalidRequest("ids", f"{job_id[:80]!r} is not the id of a job")
        try:
            found[job_id] = sse.resume_point((last_event_id and _just_before(last_event_id)) or after)
        except InvalidRequest:
            name = "Last-Event-ID" if last_event_id else "ids"
            raise InvalidRequest(name, "holds what is not the id of an event") from None
    if not 1 <= len(found) <= MAX_IDS:
        raise InvalidRequest("ids", f"names {len(found)} jobs; 1 to {MAX_IDS} are followed at once")
    return found


def _just_before(event_id: str) -> str:
    """Events of other jobs may carry the same millisecond: going on from the one before repeats rather than misses."""
    milliseconds = event_id.partition("-")[0]
    is_time = milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= 20
    return str(max(0, int(milliseconds) - 1)) if is_time else event_id


@router.get("", responses=MANY_EVENTS | problems(422, 503))
async def many_events(
    request: Request,
    backend: Uses,
    ids: Annotated[str, Query(description=f"Up to {MAX_IDS} job ids, by commas; `ID@EVENT` goes on after that event.")],
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """`status`, `progress`, `preview` and `done` of several jobs; `id` in the data says whose. `end` after the last."""
    frames = stream(backend, cursors(ids, last_event_id), request.app.state.closing)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


async def stream(
    backend: Backend, after: dict[str, str], closing: threading.Event, heartbeat_s: float = sse.HEARTBEAT_S
) -> AsyncIterator[str]:
    """Each job until its `done`, or `gone` if it is unknown; a comment in each silent `heartbeat_s`.

    A job that has ended when the stream opens is told by its `done` alone.
    """
    yield f"retry: {sse.RECONNECT_MS}\n\n"
    live = dict(after)
    spoke = 0.0  # the records are looked at first
    try:
        while live and not closing.is_set():
            if time.monotonic() - spoke >= heartbeat_s:
                for frame in await _looked_up(backend, live):
                    yield frame
                yield ": alive\n\n"
                spoke = time.monotonic()
                continue
            for job_id, event in await backend.client.store.events_of(live, block_s=min(sse.SLICE_S, heartbeat_s)):
                yield await _frame(backend, job_id, event)
                spoke = time.monotonic()
                live[job_id] = event.id
                if event.type == "done":
                    del live[job_id]
        if not live:
            yield sse.frame("", "end", {})
    except StoreUnavailable as error:
        yield f": {sse.one_line(error)}\n\n"


async def _frame(backend: Backend, job_id: str, event: Event) -> str:
    data: dict[str, Any] = {"id": job_id, **event.data}
    if event.type == "done":
        try:
            data = brief(await backend.client.store.get(job_id))
        except UnknownJob:
            return sse.frame(event.id, "gone", {"id": job_id})
    return sse.frame(event.id, event.type, data)


async def _looked_up(backend: Backend, live: dict[str, str]) -> list[str]:
    """Frames of what no stream tells: for those that have ended or are unknown, which leave `live`, their streams may
    have expired; for those that nobody has claimed yet there is none."""
    frames = []
    for job_id in list(live):
        try:
            job = await backend.client.store.get(job_id)
        except UnknownJob:
            frames.append(sse.frame("", "gone", {"id": job_id}))
            del live[job_id]
            continue
        for event in first_event(job, live[job_id]):
            frames.append(sse.frame(event.id, event.type, {"id": job_id, **event.data}))
            live[job_id] = event.id
        if job.status.is_terminal:
            frames.append(sse.frame("", "done", brief(job)))
            del live[job_id]
    return frames
