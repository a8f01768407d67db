"""What is there when all is quiet: records and indexes of Redis, objects of the bucket, lines of the step log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tasks.settings import Settings


@dataclass(frozen=True, slots=True)
class Step:
    """The model did a step of a row."""

    at_ms: float
    pid: int
    attempt: int
    row: int
    step: int


@dataclass(frozen=True)
class Stored:
    """Redis and the bucket, read past all proxies."""

    records: Mapping[str, Mapping[str, str]]
    #: Members of every index that live jobs are in, by key without its prefix.
    live_indexes: Mapping[str, frozenset[str]]
    statuses: Mapping[str, frozenset[str]]
    #: Keys of what is counted for tenants and groups, and of whose turn it is.
    books: Sequence[str]
    #: Idempotency key -> job id.
    keys: Mapping[str, str]
    num_unacked: int
    num_dead: int
    objects: Mapping[str, bytes]


def read_stored(settings: Settings) -> Stored:
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as client:
        prefix = settings.key_prefix
        everything: list[str] = sorted(client.scan_iter(f"{prefix}*", count=1000))
        names = [key.removeprefix(prefix) for key in everything]

        def members(*heads: str) -> dict[str, frozenset[str]]:
            wanted = [name for name in names if name.split(":")[0] in heads]
            return {name: frozenset(client.zrange(prefix + name, 0, -1)) for name in wanted}

        jobs = [name.removeprefix("job:") for name in names if name.startswith("job:")]
        return Stored(
            records={job_id: client.hgetall(f"{prefix}job:{job_id}") for job_id in jobs},
            live_indexes=members("queue", "line", "running", "hints", "leases", "live")
            | {name: frozenset({name.removeprefix("abort:")}) for name in names if name.startswith("abort:")},
            statuses={name.removeprefix("status:"): ids for name, ids in members("status").items()},
            books=[name for name in names if name.split(":")[0] in ("rows", "turns", "rested", "clock")],
            keys={
                name.removeprefix("idem:"): str(client.get(prefix + name)) for name in names if name.startswith("idem:")
            },
            num_unacked=client.hlen("unacked"),
            num_dead=client.zcard(f"{prefix}dead"),
            objects=_objects(settings),
        )


def _objects(settings: Settings) -> dict[str, bytes]:
    import boto3
    from botocore.config import Config

    client: Any = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint_url,
        region_name=settings.s3_region,
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=settings.s3_bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    with ThreadPoolExecutor(8) as threads:
        bodies = threads.map(lambda key: client.get_object(Bucket=settings.s3_bucket, Key=key)["Body"].read(), keys)
        return dict(zip(keys, bodies, strict=True))


def read_steps(path: Path, monotonic_to_wall_ms: float) -> dict[str, Sequence[Step]]:
    """By job, in the order in which they happened."""
    steps: dict[str, list[Step]] = {}
    for line in path.read_text("ascii").splitlines():
        at_ns, pid, request_id, row, step = line.split(" ")
        job_id, _, attempt = request_id.rpartition(".")
        if attempt.isdigit():  # a warm-up has no attempt
            at_ms = int(at_ns) / 1e6 + monotonic_to_wall_ms
            steps.setdefault(job_id, []).append(Step(at_ms, int(pid), int(attempt), int(row), int(step)))
    return {job_id: sorted(mine, key=lambda step: step.at_ms) for job_id, mine in steps.items()}
