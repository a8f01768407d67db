"""The engine's thread in front of its ranks: passes on requests and what becomes of them, and replaces ranks it loses.

It owns no device and waits for no rank: it sleeps until the next command, report or due time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import assert_never

from ..adapter import Capabilities
from ..checkpoint import Checkpoint
from ..config import EngineConfig
from ..device_memory import DeviceMemory
from ..errors import EngineClosed, EngineDead, ModelLoadError
from ..inbox import Abort, Call, Command, Heard, Inbox, Spoiled, Stop, Submit, Wave
from ..ledger import Ledger
from ..lifecycle import Lifecycle, State
from ..stats import EngineStats, RunningGroup
from .desk import Desk
from .figures import Figures
from .futures import gather, make
from .messages import WIRE, Answer, Beat, Broken, Logged, Ready, Report, Said, Told
from .rank import Rank, RankState
from .rank_process import Cut, Ended

log = logging.getLogger(__name__)

#: At the end of the engine: how long its ranks may take to end their batches and let go of their models.
LEAVE_S = 5.0


class RankLoop:
    """An Executor whose devices are ranks, each in a process of its own."""

    def __init__(
        self,
        config: EngineConfig,
        inbox: Inbox,
        ledger: Ledger,
        lifecycle: Lifecycle,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._inbox = inbox
        self._ledger = ledger
        self._lifecycle = lifecycle
        self._clock = clock
        together = config.parallel is not None  # one rank, whose own adapter has the other devices follow
        devices = (",".join(config.devices),) if together else config.devices or (config.device,)
        self.ranks = tuple(Rank(index, device, config, inbox) for index, device in enumerate(devices))
        self._desk = Desk(config, self.ranks, ledger, clock)
        self._figures = Figures(config, self.ranks)
        self._stopping = False
        #: The longest sleep: a much longer one was not ours.
        self._glance_s = config.silence_s / 4
        #: What was said by incarnations, or of requests, that nobody waits for any more.
        self.refused = 0

    @property
    def model(self) -> str | None:
        """See Executor."""
        ready = self.ranks[0].ready
        return None if ready is None else ready.model

    def run(self, ready: Future[Capabilities]) -> None:
        """See Executor."""
        self._lifecycle.live(ready, self._load, self._serve, self._tear_down)

    def _load(self) -> Capabilities | None:
        """All ranks, side by side. None if the engine is closed meanwhile. Raises ModelLoadError."""
        for rank in self.ranks:
            rank.start(self._clock())
        while not self._stopping and any(rank.ready is None for rank in self.ranks):
            self._turn()
            for rank in self.ranks:
                if rank.state not in (RankState.LOADING, RankState.UP):
                    raise ModelLoadError(f"{rank.name}: {rank.reason}")
        if self._stopping:
            return None
        found = [rank.ready.capabilities for rank in self.ranks if rank.ready is not None]
        settled = {(one.mode, one.modality, one.dtype) for one in found}
        if len(settled) > 1:
            raise ModelLoadError(
                f"{self._config.model}: its ranks differ in mode or dtype, give them: {sorted(settled)}"
            )
        self._desk.open(found[0].mode)
        for rank in self.ranks:
            self._desk.up(rank)
        capabilities = replace(found[0], device=",".join(rank.device for rank in self.ranks))
        self._figures.capabilities = capabilities
        log.info("%s is served by %d ranks in %s mode", self._config.model, len(self.ranks), capabilities.mode)
        return capabilities

    def _serve(self) -> None:
        while not self._stopping:
            self._turn()
            if all(rank.state is RankState.DEAD for rank in self.ranks):
                raise RuntimeError(
                    "no rank is left: " + "; ".join(f"{rank.name}: {rank.reason}" for rank in self.ranks)
                )

    def _turn(self) -> None:
        """See to what is due, hand out what can be, then sleep until there is something to hear, and hear all of it."""
        self._watch()
        if self._lifecycle.state is State.RUNNING:
            self._desk.hand_out()
        before, sleep_s = self._clock(), self._sleep_s()
        command = self._inbox.get(sleep_s)
        slept_s = self._clock() - before
        if slept_s > sleep_s + self._glance_s:  # this process was stopped, and could not hear anybody
            for rank in self.ranks:
                rank.vigil.forgive(slept_s)
        while command is not None:
            self._handle(command)
            command = self._inbox.get(0)

    def _sleep_s(self) -> float:
        waits = self._desk.wake_s() if self._lifecycle.state is State.RUNNING else None
        due = (waits, self._ledger.next_deadline_s(), *(rank.wake_s() for rank in self.ranks))
        wake_s = min((wake for wake in due if wake is not None), default=None)
        return self._glance_s if wake_s is None else min(self._glance_s, max(0.0, wake_s - self._clock()))

    def _watch(self) -> None:
        now = self._clock()
        self._desk.expire()
        for rank in self.ranks:
            if rank.state is RankState.RESTING and now >= rank.due_s:
                rank.start(now)
            elif rank.alive:
                if self._lifecycle.state is State.PAUSED:
                    rank.moved(now)
                complaint = rank.vigil.complaint(now)
                if complaint is not None:
                    self._lose(rank, complaint)

    def _handle(self, command: Command) -> None:
        match command:
            case Submit():
                self._desk.admit(command)
            case Wave(submits):
                for submit in submits:
                    self._desk.admit(submit)
            case Abort(requests):
                for account in filter(None, map(self._ledger.of, requests)):
                    self._desk.abort(account)
            case Call():
                make(command)
            case Heard(index, what):
                self._hear(self.ranks[index], what)
            case Spoiled():
                raise AssertionError("rows are finished in the ranks")
            case Stop():
                self._stopping = True
            case _:
                assert_never(command)

    def _hear(self, rank: Rank, what: object) -> None:
        match what:
            case Said(epoch, report) if rank.is_current(epoch):
                rank.vigil.heard_s = self._clock()
                self._note(rank, report)
            case Cut(epoch, reason) if rank.is_current(epoch):
                self._lose(rank, reason)
            case Ended(epoch, code) if epoch == rank.epoch:
                rank.ended(code, self._clock())
            case Said():  # of an incarnation that was given up
                self.refused += 1

    def _note(self, rank: Rank, report: Report) -> None:
        match report:
            case Beat():
                rank.note(report, self._clock())
            case Told():
                self.refused += not self._desk.tell(rank, report)
            case Answer():
                rank.answer(report)
            case Logged(name, level, text):
                logging.getLogger(name).log(level, "%s: %s", rank.name, text)
            case Ready():
                is_restart = rank.ready is not None
                rank.up(report, self._clock())
                if is_restart:
                    self._desk.up(rank)
            case Broken(reason):
                self._lose(rank, reason)
            case _:
                assert_never(report)

    def _lose(self, rank: Rank, reason: str) -> None:
        self._figures.keep(rank)
        self._desk.take_back(rank.lose(reason), rank)

    def stats(self) -> EngineStats:
        """See Executor."""
        return self._figures.stats(self._lifecycle.state.value, self._desk.waiting_rows, self._desk.max_rows)

    def groups(self) -> tuple[RunningGroup, ...]:
        """See Executor."""
        return self._figures.groups()

    def memory(self) -> DeviceMemory | None:
        """See Executor."""
        return self._figures.memory()

    def call(
        self,
        method: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        rank: int | None,
        timeout_s: float | None,
    ) -> Callable[[], object]:
        """See Executor. TypeError for arguments that cannot cross."""
        if rank is not None and not 0 <= rank < len(self.ranks):
            raise ValueError(f"there is no rank {rank}: this engine has {len(self.ranks)}")
        WIRE.pack((args, kwargs))
        ask = partial(Rank.ask, word="method", name=method, args=args, kwargs=kwargs, timeout_s=timeout_s)
        return partial(ask, self.ranks[rank]) if rank is not None else lambda: gather([ask(one) for one in self.ranks])

    def profile(self, start: bool, prefix: str) -> Callable[[], object]:
        """See Executor. A trace for each rank, with its number in the name."""
        method = "profile_start" if start else "profile_stop"

        def ask(rank: Rank) -> Future[object]:
            args = (f"{prefix}_rank{rank.index}",) if start else ()
            return rank.ask("method", method, args=args)

        return lambda: gather([ask(rank) for rank in self.ranks])

    def pause(self) -> Future[object]:
        """See Executor."""
        self._lifecycle.move(State.PAUSED)
        return gather([rank.ask("pause") for rank in self.ranks if rank.state is RankState.UP], lost_is_fine=True)

    def resume(self) -> Future[object]:
        """See Executor."""
        self._lifecycle.move(State.RUNNING)
        return gather([rank.ask("resume") for rank in self.ranks if rank.state is RankState.UP], lost_is_fine=True)

    def export(self, request_id: str, timeout_s: float | None = None) -> Checkpoint | Future[object] | None:
        """See Executor."""
        return self._desk.export(request_id, self.model, timeout_s)

    def _tear_down(self, cause: BaseException | None) -> None:
        """Leave nothing open: no stream, no call, no process. Runs once, on this thread, however the loop has ended."""
        died = cause is not None and self._lifecycle.state in (State.RUNNING, State.PAUSED)
        message = f"the engine died: {cause}" if died else "the engine was closed"
        if died:
            log.critical("the engine died", exc_info=cause)
        self._inbox.close(EngineDead(message) if died else EngineClosed(message))
        self._ledger.end_all(message)
        self._refuse_calls(message)
        ends_s = self._clock() + (LEAVE_S if cause is None else 0.0)
        for rank in self.ranks:
            rank.fail_asks(EngineClosed(message))
            rank.leave()
        for rank in self.ranks:
            rank.see_off(max(0.0, ends_s - self._clock()))
        for rank in self.ranks:
            rank.wait()
        self._lifecycle.move(State.DEAD if died else State.CLOSING)
        self._lifecycle.move(State.CLOSED)

    def _refuse_calls(self, message: str) -> None:
        while (command := self._inbox.get(0)) is not None:
            if isinstance(command, Call) and command.future.set_running_or_notify_cancel():
                command.future.set_exception(EngineClosed(message))
