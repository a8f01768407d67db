"""What one check found, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "FAIL", "skipped"]

#: Of these checks a failure means that nothing can work from here.
REACH = ("redis.reach", "store.reach")


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` is `area.name`, `found` a fact, `remedy` the setting to change or the command to give. One line each."""

    check: str
    status: Status
    found: str
    remedy: str = ""

    @property
    def area(self) -> str:
        return self.check.partition(".")[0]

    @property
    def name(self) -> str:
        return self.check.partition(".")[2]


def ok(check: str, found: str) -> Finding:
    return Finding(check, "ok", found)


def warn(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, "warn", found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, "FAIL", found, remedy)


def skipped(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, "skipped", found, remedy)


def is_unreachable(findings: Iterable[Finding]) -> bool:
    return any(each.status == "FAIL" and each.check in REACH for each in findings)


def has_failed(findings: Iterable[Finding]) -> bool:
    return any(each.status == "FAIL" for each in findings)


def size(num_bytes: float) -> str:
    """1.2 GB, 340 MB, 12 KB: for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if num_bytes >= factor:
            amount = num_bytes / factor
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{num_bytes:.0f} B"


def span(seconds: float) -> str:
    """0.4 ms, 3.0 s, 5 min, 2 h: for people."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.0f} h"
