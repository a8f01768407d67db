"""Whose turn it is, for the store in memory: what `turns.lua` does, over one model's waiting tenants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tasks.quotas import Quotas

#: Time that a level of priority is worth, in the units of stamps: 1024 for a millisecond.
STAMPS_PER_MS = 1024
PRIORITY_WORTH = 60_000 * STAMPS_PER_MS
MAX_LOOK = 200
_MAX_TENANTS_SEEN = 100


@dataclass(frozen=True, slots=True)
class Tags:
    """Start-time fair queueing: the virtual time, and when the next job of each tenant starts on it."""

    waiting: Mapping[str, float] = field(default_factory=dict)
    #: Of tenants that are ahead of the clock and have nothing that waits.
    rested: Mapping[str, float] = field(default_factory=dict)
    clock: float = 0.0

    def order(self) -> list[tuple[float, str]]:
        return sorted((tag, tenant) for tenant, tag in self.waiting.items())

    def entered(self, tenant: str) -> Tags:
        if tenant in self.waiting:
            return self
        tag = max(self.clock, self.rested.get(tenant, 0.0))
        return replace(self, waiting={**self.waiting, tenant: tag}, rested=_without(self.rested, tenant))

    def left(self, tenant: str) -> Tags:
        """Its line is empty; with the last line all is forgotten."""
        tag, waiting = self.waiting[tenant], _without(self.waiting, tenant)
        if not waiting:
            return Tags()
        rested = {**self.rested, tenant: tag} if tag > self.clock else self.rested
        return replace(self, waiting=waiting, rested=rested)

    def charged(self, tenant: str, cost: float) -> Tags:
        """One of its jobs starts."""
        clock = max(self.clock, self.waiting[tenant])
        rested = {name: tag for name, tag in self.rested.items() if tag > clock}
        return Tags({**self.waiting, tenant: self.waiting[tenant] + cost}, rested, clock)

    def lifted(self, passed: Iterable[str], tenant: str) -> Tags:
        """Those that were passed over, at a limit, save up nothing meanwhile."""
        return replace(self, waiting={**self.waiting, **dict.fromkeys(passed, self.waiting[tenant])})


def _without(tags: Mapping[str, float], tenant: str) -> dict[str, float]:
    return {name: tag for name, tag in tags.items() if name != tenant}


def jobs_ahead(tags: Tags, lengths: Mapping[str, int], quotas: Quotas, tenant: str, rank: int) -> int:
    """Before the one at `rank` of the tenant's line, if each had one row and nobody a limit."""
    start = tags.waiting[tenant] + rank / quotas.of(tenant).weight
    ahead = rank
    for tag, other in tags.order()[:_MAX_TENANTS_SEEN]:
        before = (start - tag) * quotas.of(other).weight
        if other != tenant and before >= 0:
            before = math.floor(before) + 1 if other < tenant else math.ceil(before)
            ahead += min(int(before), lengths[other])
    return ahead
