"""One rank through its incarnations: what state it is in, what it has in hand, what it was asked. Front thread only."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from itertools import count

from ..config import EngineConfig
from ..errors import EngineClosed, RankLost
from ..inbox import Heard, Inbox
from ..params import MAX_OUTPUTS
from .cases import Case
from .messages import Answer, Ask, Beat, Begin, Drop, Leave, Ready, Take, Word
from .rank_process import RankProcess
from .restarts import Restarts
from .spawn import visible_device
from .vigil import Vigil

log = logging.getLogger(__name__)

#: Between SIGTERM and SIGKILL.
GRACE_S = 2.0
#: How often a rank says that it lives, as a part of the silence that ends it; never less often than each second.
BEATS = 5


class RankState(Enum):
    #: never started
    NEW = "new"
    #: its process loads the model
    LOADING = "loading"
    #: it takes requests
    UP = "up"
    #: it was given up, its process has not ended yet
    ENDING = "ending"
    #: no process; it waits for its next start
    RESTING = "resting"
    #: no process, and none to come
    DEAD = "dead"


class Rank:
    """`device` is its name in the configuration."""

    def __init__(self, index: int, device: str, config: EngineConfig, inbox: Inbox) -> None:
        self.index = index
        self.device = device
        self._config = config
        self._inbox = inbox
        self._restarts = Restarts(config.restart_backoff_s, config.max_restarts)
        self._process: RankProcess | None = None
        self._numbers = count()
        self._asks: dict[int, Future[object]] = {}
        self._up_since_s: float | None = None
        self.state = RankState.NEW
        self.epoch = 0
        self.reason = ""
        self.due_s = 0.0
        self.cases: dict[str, Case] = {}
        self.beat = Beat()
        self.ready: Ready | None = None
        self.vigil = Vigil(config.silence_s, config.wave_deadline_s, 0.0)

    @property
    def name(self) -> str:
        return f"rank {self.index} on {self.device}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, now: float) -> None:
        """A new incarnation. On the front thread, which outlives it."""
        device, environment = visible_device(self.device, os.environ)
        self.epoch += 1
        self.state = RankState.LOADING
        self.beat = Beat()
        self.vigil = Vigil(self._config.silence_s, self._config.wave_deadline_s, now)
        beat_s = min(1.0, self._config.silence_s / BEATS)
        level = logging.getLogger().getEffectiveLevel()
        begin = Begin(self.epoch, rank_config(self._config, device), beat_s, level)
        self._process = RankProcess(self.index, begin, environment, self._hear)
        log.info("%s: incarnation %d starts, pid %d", self.name, self.epoch, self._process.pid)

    def _hear(self, what: object) -> None:
        with suppress(EngineClosed):  # then nobody listens any more
            self._inbox.put(Heard(self.index, what))

    @property
    def alive(self) -> bool:
        """Whether it has a process that counts."""
        return self.state in (RankState.LOADING, RankState.UP)

    def wake_s(self) -> float | None:
        """When it is next to be looked at if nothing is heard."""
        if self.alive:
            return self.vigil.due_s()
        return self.due_s if self.state is RankState.RESTING else None

    def is_current(self, epoch: int) -> bool:
        """Whether words of this epoch count: of an incarnation that was given up nothing does."""
        return epoch == self.epoch and self.alive

    def up(self, ready: Ready, now: float) -> None:
        """It has loaded."""
        self.state, self.ready, self._up_since_s = RankState.UP, ready, now
        self.vigil.loading = False

    def note(self, beat: Beat, now: float) -> None:
        """It lives; if it has run a batch since the last, what it has in hand got on."""
        before, self.beat = self.beat, beat
        if before.stats is None or beat.stats is None or before.stats.batches != beat.stats.batches:
            self.moved(now)

    def take(self, cases: Sequence[Case], now: float) -> None:
        """Hand over what has its ticket. Raises what the pictures of a request raise when they are read."""
        wanted = tuple(
            (replace(case.account.request, request_id=case.ticket, solo=case.alone), now - case.account.submitted_s)
            for case in cases
        )
        self._post(Take(wanted))
        if not self.cases:
            self.vigil.moved_s = now
        self.cases |= {case.ticket: case for case in cases}

    def drop(self, case: Case) -> None:
        """Its request is to end at the next step."""
        if self.state is RankState.UP:
            self._post(Drop((case.ticket,)))

    def forget(self, case: Case) -> None:
        """Whatever it says of this ticket from now on means nothing."""
        self.cases.pop(case.ticket, None)
        if not self.cases:
            self.vigil.moved_s = None

    def moved(self, now: float) -> None:
        """Something of what it has in hand got on."""
        if self.cases:
            self.vigil.moved_s = now

    def ask(
        self,
        word: Word,
        name: str = "",
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
    ) -> Future[object]:
        """Its answer. Raises RankLost unless it is up."""
        if self.state is not RankState.UP:
            raise RankLost(f"{self.name} is {self.state.value}" + f": {self.reason}" * bool(self.reason))
        number = next(self._numbers)
        future: Future[object] = Future()
        future.set_running_or_notify_cancel()
        self._asks[number] = future
        self._post(Ask(number, word, name, args, kwargs, timeout_s))
        return future

    def answer(self, answer: Answer) -> None:
        future = self._asks.pop(answer.number, None)
        if future is None:
            return
        if isinstance(answer.error, BaseException):
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)

    def lose(self, reason: str) -> list[Case]:
        """Give this incarnation up and end its process; returns what it had in hand. Nothing it says counts now."""
        assert self._process is not None
        log.error("%s is lost: %s", self.name, reason)
        self.state, self.reason = RankState.ENDING, reason
        self.beat = Beat()
        self._process.end(GRACE_S)
        self.fail_asks(RankLost(f"{self.name} was lost: {reason}"))
        cases, self.cases = list(self.cases.values()), {}
        return cases

    def ended(self, code: int, now: float) -> None:
        """Its process is no more: rest until the next start, or never start again."""
        served_s = 0.0 if self._up_since_s is None else now - self._up_since_s
        self._up_since_s = None
        pause_s = self._restarts.lost(served_s)
        if pause_s is None:
            self.state = RankState.DEAD
            log.error("%s is given up after %d restarts: %s", self.name, self._config.max_restarts, self.reason)
            return
        self.state, self.due_s = RankState.RESTING, now + pause_s
        log.warning("%s: its process ended with %d; the next starts in %.1f s", self.name, code, pause_s)

    def fail_asks(self, error: Exception) -> None:
        asks, self._asks = self._asks, {}
        for future in asks.values():
            future.set_exception(error)

    def leave(self) -> None:
        """Ask the process to go, if it is one that can hear."""
        if self.state is RankState.UP:
            self._post(Leave())

    def see_off(self, patience_s: float) -> None:
        """Wait so long for the process to go, then end it."""
        if self._process is not None:
            self._process.see_off(patience_s if self.state is RankState.UP else 0.0, GRACE_S)

    def wait(self) -> None:
        """Until its process is no more. After `see_off`."""
        if self._process is not None:
            self._process.wait()
        self.state = RankState.DEAD

    def _post(self, command: Take | Drop | Ask | Leave) -> None:
        assert self._process is not None
        self._process.post(command)


def rank_config(config: EngineConfig, device: str) -> EngineConfig:
    """What a rank's own engine is made from. Raises ValueError for a class that cannot be found by name."""
    return replace(
        config,
        executor="inline",
        devices=config.devices if config.parallel else (),
        device="auto" if config.parallel else device,
        max_waiting=max(config.max_waiting, 2 * config.max_batch_rows + MAX_OUTPUTS),  # the bound is kept in front
        pipeline_class=_path(config.pipeline_class),
        engine_backend=_path(config.engine_backend),
    )


def _path(named: str | type | None) -> str | None:
    if not isinstance(named, type):
        return named
    if named.__module__ == "__main__" or "." in named.__qualname__:
        raise ValueError(f"{named.__qualname__} must be a class of a module, for another process to find it by name")
    return f"{named.__module__}.{named.__qualname__}"
