"""The areas of an examination: each asks its probes, has the facts judged, and yields findings as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from tasks.connection import connect
from tasks.doctor.finding import Finding, fail, skipped
from tasks.doctor.judge.api import judge_api
from tasks.doctor.judge.broker import judge_broker
from tasks.doctor.judge.device import judge_device
from tasks.doctor.judge.models import device_of, judge_file, judge_model, judge_together, needed_bytes, room
from tasks.doctor.judge.redis import judge_redis
from tasks.doctor.judge.sentinels import judge_sentinels
from tasks.doctor.judge.store import StoreJudge
from tasks.doctor.judge.workers import judge_workers
from tasks.doctor.probe.api import ask_api
from tasks.doctor.probe.broker import ask_broker
from tasks.doctor.probe.models import ModelFacts, look_at
from tasks.doctor.probe.redis import ask_redis
from tasks.doctor.probe.sentinels import ask_sentinels
from tasks.doctor.probe.store import StoreProbe, is_missing_bucket
from tasks.doctor.scope import DEFAULT_API_URL, Scope
from tasks.errors import ConfigError, StoreUnavailable
from tasks.model_room import Need
from tasks.models import Models, load_models
from tasks.redis_address import parse_address
from tasks.redis_rights import producer_samples, worker_samples
from tasks.redis_store import RedisJobStore
from tasks.release import release

Area = Callable[[Scope], Iterator[Finding]]
_MAX_DEAD = 100


def redis(scope: Scope) -> Iterator[Finding]:
    settings, names = scope.settings, _configured(scope) or ("tiny",)
    try:
        address = parse_address(settings.redis_url)
        samples = worker_samples(settings.key_prefix, names, settings.submit_queue_names, address.db)
        answers = ask_redis(settings, samples, scope.limit_s, scope.now)
    except ConfigError as error:
        yield fail("redis.reach", str(error), "SAFELIGHT_REDIS_URL=redis://HOST:6379/0; docs/redis.md has all forms")
        return
    if address.kind == "sentinel":
        yield judge_sentinels(ask_sentinels(address, scope.limit_s), address.master)
    yield from judge_redis(answers, settings, producer_samples(settings.key_prefix, names))


def _configured(scope: Scope) -> tuple[str, ...]:
    """Names of the models in the file; none if it is wrong, which the models' own check tells."""
    try:
        return load_models(scope.settings.models).names
    except ConfigError:
        return ()


def broker(scope: Scope) -> Iterator[Finding]:
    yield from judge_broker(ask_broker(scope.settings, scope.limit_s, scope.now), scope.settings)


def store(scope: Scope) -> Iterator[Finding]:
    try:
        probe = StoreProbe(scope.settings, scope.limit_s, scope.now)
    except ConfigError as error:
        yield fail("store.reach", str(error), "SAFELIGHT_S3_ENDPOINT_URL=http://HOST:PORT, or unset for AWS")
        return
    judge = StoreJudge(probe.place, probe.bucket)
    with probe:
        for finding in _bucket(probe, judge):
            yield finding
            if finding.status == "FAIL":
                yield skipped("store.objects", "not tried before the above is right")
                return
        for answer in probe.look_into_inputs():
            yield judge.inputs(answer)
        yield from _objects(probe, judge)
        yield from _removal(probe, judge)


def _bucket(probe: StoreProbe, judge: StoreJudge) -> Iterator[Finding]:
    first = probe.first_call()
    yield judge.reach(first)
    yield judge.clock(first)
    yield judge.credentials(first, probe.credentials())
    was_missing = is_missing_bucket(first.error)
    if not was_missing and first.error is not None:
        yield judge.region(first, None)
    created = probe.create_bucket() if was_missing else None
    yield judge.bucket_there(first, created, was_missing=was_missing)
    yield judge.region(first, probe.region())


def _objects(probe: StoreProbe, judge: StoreJudge) -> Iterator[Finding]:
    put = judge.put(probe.put())
    yield put
    if put.status == "FAIL":
        return
    yield judge.get(probe.get())
    yield judge.presigned(probe.open_presigned())
    yield judge.conditional(probe.conditional_put())
    yield judge.checksums(probe.put_with_checksum())
    yield judge.multipart(probe.multipart())


def _removal(probe: StoreProbe, judge: StoreJudge) -> Iterator[Finding]:
    yield judge.delete(probe.delete())


def models(scope: Scope) -> Iterator[Finding]:
    path = scope.settings.models
    try:
        served = load_models(path)
    except ConfigError as error:
        yield judge_file(str(error), str(path), ())
        return
    yield judge_file(None, str(path) if path else None, served.names)
    worker = scope.worker.facts()
    looks = {spec.name: look_at(spec) for spec in served}
    for spec in served:
        yield from judge_model(spec, looks[spec.name], worker, os.environ)
    if not isinstance(worker, str):
        yield from _together(served, looks, worker, scope.settings.model_memory_mb)


def _together(
    served: Models, looks: Mapping[str, ModelFacts], worker: Mapping[str, object], bound_mb: int | None
) -> Iterator[Finding]:
    by_device: dict[str, list[Need]] = {}
    for spec in served:
        need = Need(spec.name, needed_bytes(spec, looks[spec.name], worker), spec.keep)
        by_device.setdefault(device_of(spec, worker), []).append(need)
    for device, needs in by_device.items():
        finding = judge_together(needs, room(device, worker)[1], device, bound_mb)
        if finding is not None:
            yield finding


def device(scope: Scope) -> Iterator[Finding]:
    yield from judge_device(scope.worker.facts())


def api(scope: Scope) -> Iterator[Finding]:
    facts = ask_api((scope.api_url or DEFAULT_API_URL).rstrip("/"), scope.settings, scope.limit_s)
    try:
        specs = list(load_models(scope.settings.models))
    except ConfigError:  # told by the models' own check
        specs = []
    named_by = None if scope.api_url is None else scope.api_url_from
    yield from judge_api(facts, release(), specs, _worker_names(scope), named_by=named_by)


def _worker_names(scope: Scope) -> frozenset[str] | None:
    try:
        with connect(scope.settings, timeout_s=scope.limit_s, num_retries=0) as client:
            found = RedisJobStore(client, scope.settings.key_prefix).workers()
    except (ConfigError, StoreUnavailable, ValueError):
        return None
    return frozenset(str(worker["name"]) for worker in found)


def workers(scope: Scope) -> Iterator[Finding]:
    settings, configured = scope.settings, _configured(scope)
    try:
        with connect(settings, timeout_s=scope.limit_s, num_retries=0) as client:
            jobs = RedisJobStore(client, settings.key_prefix)
            names = dict.fromkeys((*configured, *jobs.known_models()))
            found, queues = jobs.workers(), jobs.queues(list(names))
            dead = len(jobs.dead_letters(_MAX_DEAD))
    except (ConfigError, StoreUnavailable) as error:
        yield skipped("workers.alive", str(error))
        return
    yield from judge_workers(found, queues, configured, dead)


#: In the order of an examination. Of those that need another, the findings mean nothing while that one has failed.
AREAS: Mapping[str, Area] = {
    "redis": redis,
    "broker": broker,
    "store": store,
    "models": models,
    "device": device,
    "api": api,
    "workers": workers,
}
NEEDS: Mapping[str, tuple[str, ...]] = {
    "broker": ("redis.reach", "redis.login", "redis.rights"),
    "workers": ("redis.reach", "redis.login", "redis.rights"),
}
