"""Traces of arrivals for the simulator: seeded, so that everybody replays the same ones. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of one output and when it comes; `size` in pixels of a side."""

    name: str
    at_s: float
    size: int
    steps: int
    guidance: float = 5.0


#: What people ask for: sizes, steps and guidance with their weights.
_SIZES = {512: 5, 768: 3, 1024: 2}
_STEPS = {20: 3, 25: 2, 28: 2, 30: 4, 40: 1, 50: 1}
_GUIDANCE = {5.0: 3, 7.0: 2, 7.5: 4, 4.0: 1}


def _draw(chance: random.Random, weights: Mapping[int, int]) -> int:
    return chance.choices(list(weights), list(weights.values()))[0]


def mixed(num: int, rate: float, seed: int = 1) -> list[Arrival]:
    """Poisson arrivals, `rate` a second, everything mixed."""
    chance, at_s, found = random.Random(seed), 0.0, []
    for number in range(num):
        at_s += chance.expovariate(rate)
        guidance = chance.choices(list(_GUIDANCE), list(_GUIDANCE.values()))[0]
        found.append(Arrival(f"m{number}", at_s, _draw(chance, _SIZES), _draw(chance, _STEPS), guidance))
    return found


def bursts(num: int, rate: float, seed: int = 2) -> list[Arrival]:
    """The same mean rate in bursts of 4 to 16 that are alike, as a user who asks for variations sends them."""
    chance, at_s, found = random.Random(seed), 0.0, []
    while len(found) < num:
        length = chance.randint(4, 16)
        at_s += chance.expovariate(rate / 10)
        size, steps = _draw(chance, _SIZES), _draw(chance, _STEPS)
        found += [Arrival(f"b{len(found) + k}", at_s + 0.01 * k, size, steps) for k in range(length)]
    return found[:num]


def four_keys(num: int, rate: float = 0.0, seed: int = 3) -> list[Arrival]:
    """All there at once, four sizes in turn: no two neighbours are compatible."""
    return [Arrival(f"k{number}", 0.0, (512, 640, 768, 896)[number % 4], 30) for number in range(num)]


def equals(num: int, rate: float = 0.0, seed: int = 4) -> list[Arrival]:
    """All there at once and all alike."""
    return [Arrival(f"e{number}", 0.0, 512, 30) for number in range(num)]


def odd_one(num: int, rate: float, seed: int = 5) -> list[Arrival]:
    """One size, and a large picture for every tenth request."""
    chance, at_s, found = random.Random(seed), 0.0, []
    for number in range(num):
        at_s += chance.expovariate(rate)
        found.append(Arrival(f"o{number}", at_s, 1024 if number % 10 == 5 else 512, 30))
    return found


#: Each trace by its name, and its rate as a share of what one by one can do; 0: all at once.
TRACES: dict[str, tuple[Callable[[int, float], list[Arrival]], float]] = {
    "mixed, half load": (mixed, 0.5),
    "mixed, 1.5 times": (mixed, 1.5),
    "bursts of alikes, 1.5 times": (bursts, 1.5),
    "one odd size in ten, 1.5 times": (odd_one, 1.5),
    "four keys in turn, at once": (four_keys, 0.0),
    "alikes, at once": (equals, 0.0),
}
