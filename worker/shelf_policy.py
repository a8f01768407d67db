"""Which of a worker's models make room for one that is wanted, and when. Pure: time and free memory are arguments.

What fits stays. Where models do not fit beside each other they take turns: the one that was idle for longest leaves
first, one with jobs goes on for a bounded time and leaves when those that it has are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """One model. Times in seconds of one clock; models of different devices never compete.

    `need_bytes` is what it takes, or would. `seats` are the jobs that hold it, `used_s` when one last came or went,
    `since_s` when it was loaded. `wanted_s`: since when jobs ask for it in vain. `elsewhere`: another worker has it.
    """

    name: str
    device: str = "cpu"
    need_bytes: int = 0
    keep: bool = False
    loaded: bool = False
    seats: int = 0
    used_s: float = 0.0
    since_s: float = 0.0
    wanted_s: float | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfPolicy:
    """`turn_s`: how long a model with jobs goes on while another waits for its place. `linger_s`: for so long after its
    last job a model is not idle yet, since the next one may be on its way."""

    turn_s: float = 30.0
    linger_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is due: `leaving` go, then `enters` is loaded. `closed` have had their turn and take no more jobs.

    `again_s`: when there may be another answer though nothing has happened; None if never.
    """

    enters: str | None = None
    leaving: tuple[str, ...] = ()
    closed: frozenset[str] = field(default_factory=frozenset)
    again_s: float | None = None


def next_move(models: Sequence[ModelState], room: Mapping[str, int], policy: ShelfPolicy, now: float) -> Move:
    """`room`: free bytes by device; a device that is not named has no bound. First come, first served, and a model that
    fits at once overtakes, but none that has waited for a whole turn."""
    closed: frozenset[str] = frozenset()
    moments: list[float] = []
    held_up: set[str] = set()
    for wanted in sorted((one for one in models if not one.loaded and one.wanted_s is not None), key=_first_come):
        if wanted.device in held_up:
            continue
        move = _make_room(wanted, models, room, policy, now)
        if move.enters is not None:
            return Move(enters=move.enters, leaving=move.leaving, closed=closed)
        closed |= move.closed
        moments += [] if move.again_s is None else [move.again_s]
        if now - _since(wanted) >= policy.turn_s:
            held_up.add(wanted.device)
    return Move(closed=closed, again_s=min(moments, default=None))


def _first_come(model: ModelState) -> tuple[float, str]:
    return _since(model), model.name


def _since(model: ModelState) -> float:
    assert model.wanted_s is not None
    return model.wanted_s


def _make_room(
    wanted: ModelState, models: Sequence[ModelState], room: Mapping[str, int], policy: ShelfPolicy, now: float
) -> Move:
    others = [one for one in models if one.loaded and not one.keep and one.device == wanted.device]
    free = room.get(wanted.device, wanted.need_bytes)
    # One that is too large for all the room there could be is tried alone: its need may be a guess.
    missing = min(wanted.need_bytes - free, sum(one.need_bytes for one in others))
    if missing <= 0:
        return Move(enters=wanted.name)
    turns = {one.name: _end_of_turn(one, wanted, policy) for one in others}
    over = {name for name, end in turns.items() if end is not None and end <= now}
    idle = [one for one in others if not one.seats and (one.name in over or now - one.used_s >= policy.linger_s)]
    leaving = _enough(sorted(idle, key=lambda one: (one.used_s, one.name)), missing)
    if leaving:
        return Move(enters=wanted.name, leaving=tuple(one.name for one in leaving))
    busy = [one for one in others if one.seats and one.name in over]
    closing = _enough([*idle, *sorted(busy, key=lambda one: (one.since_s, one.name))], missing)
    ends = [end for end in turns.values() if end is not None and end > now]
    lingers = [one.used_s + policy.linger_s for one in others if not one.seats and one not in idle]
    return Move(closed=frozenset(one.name for one in closing), again_s=min([*ends, *lingers], default=None))


def _end_of_turn(model: ModelState, wanted: ModelState, policy: ShelfPolicy) -> float | None:
    """None: not for this one, which another worker serves meanwhile."""
    return None if wanted.elsewhere else max(model.since_s, _since(wanted)) + policy.turn_s


def _enough(candidates: Sequence[ModelState], missing: int) -> list[ModelState]:
    """The first of them that make up for what is missing, without those that are not needed; empty if all do not."""
    chosen: list[ModelState] = []
    for one in candidates:
        if sum(each.need_bytes for each in chosen) >= missing:
            break
        chosen.append(one)
    for one in reversed(list(chosen)):
        if sum(each.need_bytes for each in chosen) - one.need_bytes >= missing:
            chosen.remove(one)
    return chosen if sum(each.need_bytes for each in chosen) >= missing else []
