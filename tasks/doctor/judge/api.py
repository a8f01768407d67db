"""What an API says of itself, against what this shell knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tasks.doctor.finding import Finding, fail, ok, skipped, warn
from tasks.doctor.probe.api import ApiFacts
from tasks.models import ModelSpec

_COMPARED = ("modality", "defaults", "limits", "noise_schedulers", "loras")
_RESTART = "give the API and this shell the same SAFELIGHT_MODELS, and restart the API"


def judge_api(
    facts: ApiFacts, version: str, specs: Iterable[ModelSpec], workers: frozenset[str] | None, *, named_by: str | None
) -> Iterator[Finding]:
    """`named_by`: the option or variable that says where an API is; None: it was only looked for. `workers`: those that
    this shell sees; None: not known."""
    if not facts.is_ours:
        yield _nobody(facts, named_by)
        return
    yield ok("api.reach", f"Safelight answers at {facts.url}")
    yield from _ready(facts)
    yield _version(facts, version)
    if facts.withheld:
        found = f"the API wants a token that this shell does not have ({facts.withheld})"
        yield fail("api.models", found, "set SAFELIGHT_API_KEYS here to one of its keys, in clear")
        return
    yield _models(facts.models, list(specs))
    yield _workers(facts.workers, workers)


def _nobody(facts: ApiFacts, named_by: str | None) -> Finding:
    found = f"nothing answers at {facts.url}" if facts.error else f"what answers at {facts.url} is no Safelight API"
    if named_by is None:
        return skipped("api.reach", f"{found}, the usual address; name another with --api URL or SAFELIGHT_URL")
    return fail("api.reach", found, f"start it (safelight api), or correct {named_by}, which says {facts.url}")


def _ready(facts: ApiFacts) -> Iterator[Finding]:
    bad = {name: state for name, state in facts.ready.items() if state != "ok"}
    if not bad:
        yield ok("api.ready", "it reaches Redis and can sign links")
    for name, state in bad.items():
        yield fail("api.ready", f"the API says of {name}: {state}", f"correct the API's own settings of {name}")


def _version(facts: ApiFacts, version: str) -> Finding:
    if facts.version == version:
        return ok("api.version", f"{version}, as here")
    return warn(
        "api.version", f"the API is {facts.version or 'older'}, here is {version}", "upgrade and restart the older"
    )


def _models(theirs: Mapping[str, Mapping[str, Any]] | None, ours: list[ModelSpec]) -> Finding:
    check, here = "api.models", {spec.name: _shown(spec) for spec in ours}
    if theirs is None:
        return skipped(check, "the API does not tell its models")
    if set(theirs) != set(here):
        found = f"the API serves {', '.join(theirs) or 'none'}; here the file has {', '.join(here) or 'none'}"
        return fail(check, found, _RESTART)
    for name, model in theirs.items():
        for entry in _COMPARED:
            if model.get(entry) != here[name][entry]:
                return fail(check, f"the API has other {entry} of {name} than the file here", _RESTART)
    return ok(check, f"the same as here: {', '.join(theirs)}")


def _shown(spec: ModelSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", include=set(_COMPARED)) | {"loras": list(spec.loras)}


def _workers(theirs: frozenset[str] | None, ours: frozenset[str] | None) -> Finding:
    """Workers come and go between two looks; none in common, though there are some, is another Redis."""
    check = "api.redis"
    if theirs is None or ours is None:
        return skipped(check, "its workers could not be compared with ours")
    if (theirs or ours) and not theirs & ours:
        found = f"the API sees {len(theirs)} workers and this shell {len(ours)}, none in common"
        return fail(check, found, "give both the same SAFELIGHT_REDIS_URL and SAFELIGHT_KEY_PREFIX")
    many = f"{len(ours)} worker{'s' * (len(ours) != 1)}"
    return ok(check, f"it sees the {many} seen here" if ours else "no workers there, nor here")
