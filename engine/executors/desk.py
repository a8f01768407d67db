"""The open requests in front of the ranks: taken in, handed out, told of, taken back from a lost rank, ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count

from ..checkpoint import Checkpoint, fingerprint
from ..config import EngineConfig
from ..errors import RankLost, failure
from ..inbox import Submit
from ..ledger import Account, Ledger
from ..result import Aborted, Chunk, Completed, Failed, Terminal
from ..scheduler import SchedulerPolicy
from .cases import Case
from .messages import Told
from .placement import Placement
from .rank import Rank, RankState
from .seats import Seat


class Desk:
    """Front thread only, but for `waiting_rows` and `max_rows`."""

    def __init__(self, config: EngineConfig, ranks: Sequence[Rank], ledger: Ledger, clock: Callable[[], float]) -> None:
        self._config = config
        self._ranks = ranks
        self._ledger = ledger
        self._clock = clock
        self._cases: dict[str, Case] = {}
        self._tickets = count()
        self._placement = self._place_in("request")

    @property
    def waiting_rows(self) -> int:
        return self._placement.waiting_rows

    @property
    def max_rows(self) -> int:
        return self._placement.max_rows

    def wake_s(self) -> float | None:
        """When `hand_out` has something to do if nothing happens until then."""
        return self._placement.wake_s()

    def open(self, mode: str) -> None:
        """The mode is known. Before the first request."""
        assert not self._cases
        self._placement = self._place_in(mode)

    def _place_in(self, mode: str) -> Placement:
        config = self._config
        policy = SchedulerPolicy(
            max_rows=config.max_batch_rows,
            wait_s=config.admission_wait_ms / 1000,
            look_ahead=config.look_ahead,
            max_passes=config.max_passes,
            ageing_s=config.ageing_s,
        )
        return Placement(policy, "step" if mode == "step" else "request", [Seat(rank.index) for rank in self._ranks])

    def up(self, rank: Rank) -> None:
        """The rank takes requests from now on."""
        assert rank.ready is not None
        found, rows = rank.ready.capabilities, self._config.max_batch_rows
        most = found.max_rows if found.mode == "request" else None
        self._placement.up(rank.index, rows if most is None else min(rows, most))

    def admit(self, submit: Submit) -> None:
        account = self._ledger.of(submit.request)
        if account is not None:
            self._cases[submit.request.request_id] = Case(account)
            self._placement.submit(submit.request, submit.submitted_s)

    def hand_out(self) -> None:
        """Give the ranks what they can begin now."""
        now = self._clock()
        for wave in self._placement.plan(now):
            rank = self._ranks[wave.rank]
            cases = [self._cases[request.request_id] for request in wave.requests]
            for case in cases:
                alone = case.account.request.solo or self._placement.is_suspect(case.account.request)
                case.hand_to(rank.index, f"{case.request_id}#{next(self._tickets)}", alone=alone)
            try:
                rank.take(cases, now)
            except Exception:  # a picture that cannot be read, say: its request alone is to fail
                self._hand_out_singly(rank, cases, now)

    def _hand_out_singly(self, rank: Rank, cases: Sequence[Case], now: float) -> None:
        for case in cases:
            try:
                rank.take([case], now)
            except Exception as error:
                self.end(case.account, failure(case.request_id, error))

    def abort(self, account: Account) -> None:
        """At once if it waits here; else its rank says when it has left, and how far it came."""
        case = self._cases.get(account.request.request_id)
        if case is None or case.rank is None:
            self.end(account, Aborted(account.request.request_id, account.step))
        elif not case.aborting:
            case.aborting = True
            self._ranks[case.rank].drop(case)

    def expire(self) -> None:
        """End what is past its deadline, wherever it is."""
        for account in self._ledger.expired(self._clock()):
            message = f"not done within its deadline of {account.request.deadline_s:g} s"
            self.end(account, Failed(account.request.request_id, "deadline_exceeded", message))

    def end(self, account: Account, event: Terminal) -> None:
        """The one way in which the front ends a request, wherever it is, its submit not yet here included."""
        case = self._cases.pop(account.request.request_id, None)
        if case is not None and case.rank is not None:
            self._ranks[case.rank].drop(case)
            self._ranks[case.rank].forget(case)
        self._placement.remove(account.request)
        self._ledger.end(account, account.with_metrics(event, self._clock()))

    def tell(self, rank: Rank, told: Told) -> bool:
        """Pass on what a rank says of a request. False if nobody waits for it: it has ended, or is in another hand."""
        case, now = rank.cases.get(told.ticket), self._clock()
        if case is None:
            return False
        rank.moved(now)
        event = case.hear(told.event, now)
        match event:
            case Chunk():
                self._placement.row_done(case.account.request)
                case.account.stream.put(event)
            case Completed() | Aborted() | Failed():
                rank.forget(case)
                case.rank = None
                self.end(case.account, event)
            case None:
                pass
            case _:
                case.account.stream.put(event)
        return True

    def take_back(self, cases: Sequence[Case], rank: Rank) -> None:
        """Of a lost rank: what had not begun waits again, what had begun gets a rank for itself, others end."""
        self._placement.down(rank.index)
        for case in cases:
            suspect = case.started or case.alone
            end = case.lose(f"{rank.name} was lost: {rank.reason}")
            if end is not None:
                self.end(case.account, end)
            else:
                request = case.account.request
                self._placement.submit(request, case.account.submitted_s, suspect=suspect)

    def export(self, request_id: str, model: str | None, timeout_s: float | None) -> Checkpoint | Future[object] | None:
        """See Executor."""
        case = self._cases.get(request_id)
        if case is None or model is None:
            return None
        if case.rank is not None and self._ranks[case.rank].state is RankState.UP:
            return _or_none(self._ranks[case.rank].ask("export", case.ticket, timeout_s=timeout_s))
        request = case.account.request
        self.abort(case.account)
        known = request.resume is not None and request.resume.fingerprint == fingerprint(request, model)
        return request.resume if known else None


def _or_none(asked: Future[object]) -> Future[object]:
    """Nothing of a request is done any more if its rank is lost meanwhile."""
    answer: Future[object] = Future()

    def settle(_: Future[object]) -> None:
        error = asked.exception()
        if error is None or isinstance(error, RankLost):
            answer.set_result(None if error else asked.result())
        else:
            answer.set_exception(error)

    asked.add_done_callback(settle)
    return answer
