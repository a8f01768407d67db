"""From what a producer hands over to a `NewJob`: checked, resolved, digested. Pure but for the drawn id and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import InvalidRequest, SafelightError
from tasks.ids import is_job_id, new_job_id
from tasks.job import JobStatus
from tasks.models import Models
from tasks.quotas import DEFAULT_TENANT, check_tenant
from tasks.request import GenerationRequest, parse_request
from tasks.resolve import resolve
from tasks.settings import Settings
from tasks.store import Created, Hint, NewJob
from tasks.trace_context import traceparent_here

RequestLike = GenerationRequest | Mapping[str, Any]
_MAX_KEY = 255


def one_form(request: RequestLike | None, fields: Mapping[str, Any]) -> RequestLike:
    """The request, or the keywords that stand for one; not both."""
    if request is not None and fields:
        raise TypeError(f"give a request or its fields, not both ({', '.join(fields)})")
    return fields if request is None else request


def new_job(
    request: RequestLike,
    models: Models,
    settings: Settings | None = None,
    *,
    idempotency_key: str | None = None,
    job_id: str | None = None,
    tenant: str = DEFAULT_TENANT,
) -> NewJob:
    """Raises `InvalidRequest` naming the field, `job_id`, `idempotency_key` and `tenant` included.

    With settings, addresses that no worker under them would ever ask are refused too.
    """
    if job_id is not None and not is_job_id(job_id):
        raise InvalidRequest("job_id", "must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'")
    if idempotency_key is not None and not (0 < len(idempotency_key) <= _MAX_KEY and idempotency_key.isprintable()):
        raise InvalidRequest("idempotency_key", f"must be 1 to {_MAX_KEY} printable characters")
    parsed = parse_request(request if isinstance(request, GenerationRequest) else dict(request))
    if settings is not None:
        from tasks.reach import check_reach  # brings an HTTP client, which most producers never need

        check_reach(parsed, settings)
    return NewJob(
        job_id or new_job_id(),
        resolve(parsed, models),
        digest(parsed),
        idempotency_key,
        trace=traceparent_here(),
        tenant=check_tenant(tenant),
    )


def digest(request: GenerationRequest) -> str:
    """SHA-256 of the fields that the producer gave, however it ordered and spelled them."""
    given = request.model_dump(mode="json", exclude_unset=True)
    text = json.dumps(given, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def accepted(answers: Sequence[Created | SafelightError]) -> list[Created]:
    """The answers of `create` if none is a refusal; else the first refusal is raised."""
    created = [answer for answer in answers if isinstance(answer, Created)]
    for answer in answers:
        if isinstance(answer, SafelightError):
            raise answer
    return created


def hints_for(created: Sequence[Created]) -> list[Hint]:
    """First messages, for the jobs that nobody has claimed yet (a known one may have lost its own)."""
    jobs = [answer.job for answer in created if answer.job.status is JobStatus.QUEUED and answer.job.attempt == 0]
    return [Hint(job.id, job.request.model or "", job.request.priority) for job in jobs]
