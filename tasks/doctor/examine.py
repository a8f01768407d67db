"""One examination: areas one after the other, each bounded in time, findings as they come. Nothing stops the rest."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tasks.doctor.areas import AREAS, NEEDS, Area
from tasks.doctor.finding import Finding, fail, skipped
from tasks.doctor.scope import Scope

#: Questions that one area may ask in a row, each of `limit_s`; the worker's probe has its own limit.
_QUESTIONS = 40
#: After Ctrl-C: for objects in the bucket to be deleted.
_TIDY_S = 5.0
_WORKER_AREAS = ("models", "device")


def examine(scope: Scope, names: Sequence[str], tell: Callable[[str], None] = lambda area: None) -> Iterator[Finding]:
    """`tell` hears the name of each area that begins."""
    found: list[Finding] = []
    with scope.worker:
        if any(name in _WORKER_AREAS for name in names):
            scope.worker.start()  # takes seconds, beside the other areas
        for name in names:
            tell(name)
            for finding in _area(scope, name, found):
                found.append(finding)
                yield finding


def _area(scope: Scope, name: str, before: Sequence[Finding]) -> Iterator[Finding]:
    bad = [each.check for each in before if each.status == "FAIL" and each.check in NEEDS.get(name, ())]
    if bad:
        yield skipped(f"{name}.all", f"not tried while {bad[0]} fails")
        return
    limit_s = _QUESTIONS * scope.limit_s + (scope.worker.limit_s if name in _WORKER_AREAS else 0)
    yield from _bounded(AREAS[name], scope, name, limit_s)


def _bounded(area: Area, scope: Scope, name: str, limit_s: float) -> Iterator[Finding]:
    """A resolver or a library that hangs past its own limits holds up its own area alone."""
    findings: queue.SimpleQueue[Finding | None] = queue.SimpleQueue()
    leave = threading.Event()

    def run() -> None:
        try:
            for finding in area(scope):
                findings.put(finding)
                if leave.is_set():  # which closes the generator, and with it what it wrote
                    break
        except Exception as error:  # a fault of the doctor must not hide what the other areas find
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            findings.put(fail(f"{name}.doctor", f"the examination itself failed: {said}", "report this as a bug"))
        findings.put(None)

    thread = threading.Thread(target=run, name=f"doctor-{name}", daemon=True)
    thread.start()
    try:
        yield from _within(findings, name, limit_s)
    finally:
        leave.set()
        thread.join(_TIDY_S)


def _within(findings: queue.SimpleQueue[Finding | None], name: str, limit_s: float) -> Iterator[Finding]:
    give_up_at = time.monotonic() + limit_s
    while True:
        try:
            finding = findings.get(timeout=max(0.0, give_up_at - time.monotonic()))
        except queue.Empty:
            yield fail(f"{name}.doctor", f"no answer within {limit_s:.0f} s", "try again with a longer --timeout")
            return
        if finding is None:
            return
        yield finding
