"""What is asked for and when: one list of mixed requests, and Poisson arrivals at a rate. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROMPTS = (
    "a red house under a yellow sun",
    "two boats at night",
    "a green tree on a hill",
    "a snowman by day",
)
#: as front ends offer them; requests of equal size and steps are what peers can batch
STEPS = (10, 20, 30, 40, 50)
GUIDANCE = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """One picture. `id` is unique in a run and free of the system that renders it."""

    id: str
    prompt: str
    size: int
    steps: int
    seed: int
    guidance: float = GUIDANCE

    def as_request(self) -> Mapping[str, Any]:
        """The mapping that `bench.peers.model` takes."""
        return {
            "id": self.id,
            "prompt": self.prompt,
            "size": self.size,
            "steps": self.steps,
            "seed": self.seed,
            "guidance": self.guidance,
        }


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    wanted: Wanted


def mixed(num_requests: int, sizes: Sequence[int], seed: int, steps: Sequence[int] = STEPS) -> list[Wanted]:
    """The same list for the same arguments. Sizes and steps are drawn evenly."""
    draw = random.Random(seed)
    return [
        Wanted(f"r{index}", draw.choice(PROMPTS), draw.choice(sizes), draw.choice(steps), draw.randrange(2**31))
        for index in range(num_requests)
    ]


def poisson(wanted: Sequence[Wanted], rate_per_s: float, seed: int) -> list[Arrival]:
    """Arrivals with exponential gaps, the first after one. A higher rate is the same trace, pressed together."""
    draw = random.Random(seed)
    at_s, arrivals = 0.0, []
    for one in wanted:
        at_s += draw.expovariate(1.0) / rate_per_s
        arrivals.append(Arrival(at_s, one))
    return arrivals
