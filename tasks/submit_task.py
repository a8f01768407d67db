"""The body of `safelight.submit`: a job from a Celery message, whose id becomes the job's: redelivery is harmless."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from celery.exceptions import Reject

from tasks.broker_queues import SUBMIT
from tasks.errors import IdempotencyConflict, InvalidRequest, QueueFull, StoreUnavailable
from tasks.hints import Hinter
from tasks.ids import is_job_id
from tasks.job import Job, JobError
from tasks.models import Models
from tasks.quotas import DEFAULT_TENANT
from tasks.request import parse_request
from tasks.resolve import resolve
from tasks.settings import Settings
from tasks.store import Created, JobStore, NewJob
from tasks.submission import accepted, hints_for, new_job
from tasks.trace_context import joining

log = logging.getLogger(__name__)
_PAUSE_S = 1.0


def register_submit(
    app: Celery, store: JobStore, models: Models, hinter: Hinter, settings: Settings | None = None
) -> None:
    """Register the task. Its message goes back to its queue while the store is full or away."""

    @app.task(name=SUBMIT, bind=True, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
    def submit(bound_task: Any, *args: Any, **fields: Any) -> str | None:
        """Whatever the arguments are, they are for us to judge: a TypeError of the call would leave no record."""
        sent = bound_task.request
        try:
            # Headers of the message: the first as OpenTelemetry's instrumentation of Celery writes it.
            with joining(sent.get("traceparent")):
                tenant = sent.get("tenant") or (sent.headers or {}).get("tenant") or DEFAULT_TENANT
                wanted = one_message(args, fields)
                job = submit_message(sent.id, wanted, store, models, hinter, settings, tenant=tenant)
        except (QueueFull, StoreUnavailable) as error:
            log.warning("task %s: %s", sent.id, error)
            time.sleep(_PAUSE_S)  # a message that cannot be served now must not spin through the queue
            raise Reject(str(error), requeue=True) from error
        return None if job is None else job.id


def one_message(args: Sequence[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, given as one object, as keywords, or as both. What is no object is kept, for its error."""
    others = {name: value for name, value in fields.items() if name != "request"}
    objects = [one for one in (*args, fields.get("request")) if one is not None]
    if len(objects) > 1:
        return {**others, "args": objects}
    request = objects[0] if objects else {}
    return {**request, **others} if isinstance(request, Mapping) else {**others, "request": request}


def submit_message(
    task_id: str,
    fields: Mapping[str, Any],
    store: JobStore,
    models: Models,
    hinter: Hinter,
    settings: Settings | None = None,
    *,
    tenant: str = DEFAULT_TENANT,
) -> Job | None:
    """The job; for a bad request one that has failed, so that the producer sees why. None: no job can have that id."""
    if not is_job_id(task_id):
        log.error("a %s message was dropped: its task id %r cannot be a job's", SUBMIT, task_id[:80])
        return None
    try:
        created = _created(task_id, fields, store, models, settings, tenant)
    except IdempotencyConflict as error:
        log.error("a %s message was dropped: %s", SUBMIT, error)
        return None
    hinter.publish(hints_for(created))
    return created[0].job


def _created(
    task_id: str,
    fields: Mapping[str, Any],
    store: JobStore,
    models: Models,
    settings: Settings | None,
    tenant: str,
) -> list[Created]:
    try:
        return accepted(store.create([new_job(fields, models, settings, job_id=task_id, tenant=str(tenant))]))
    except InvalidRequest as error:
        return accepted(store.create([_rejected(task_id, fields, models, error)]))


def _rejected(task_id: str, fields: Mapping[str, Any], models: Models, error: InvalidRequest) -> NewJob:
    """A record needs a valid request: the given prompt, group and metadata if they are, and the default model."""
    for names in (("prompt", "group", "metadata"), ("prompt",), ()):
        kept = {name: fields[name] for name in names if name in fields}
        try:
            request = resolve(parse_request({"prompt": "(invalid)", **kept}), models)
            break
        except InvalidRequest:
            continue
    return NewJob(task_id, request, "rejected", rejected=JobError(type="invalid_request", message=str(error)))
