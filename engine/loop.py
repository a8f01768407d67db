"""The device thread: loads the model, then serves the inbox and the scheduler in turn until told to stop.

It sleeps exactly until the next command or the next moment at which a batch or a deadline is due. While a batch runs,
the inbox is served at each of its steps; calls wait for the end of the batch.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial

from .adapter import Capabilities, PipelineAdapter
from .batch_runner import BatchRunner
from .checkpoint import Checkpoint
from .config import EngineConfig
from .device_memory import DeviceMemory, PeakMemory, device_memory
from .errors import EngineClosed, EngineDead, RequestError, failure
from .finisher import Finisher
from .inbox import Abort, Call, Command, Heard, Inbox, Spoiled, Stop, Submit, Wave
from .ledger import Account, Ledger
from .lifecycle import Lifecycle, State
from .pace import Pace
from .request import DiffusionRequest
from .result import Aborted, Failed
from .scheduler import Scheduler, SchedulerPolicy
from .stats import Counters, EngineStats, RunningGroup
from .step_runner import StepRunner
from .step_scheduler import StepScheduler
from .warmup import warm_up

log = logging.getLogger(__name__)

#: How long an end waits for a copy from the device that is under way.
FINISH_S = 10.0


class DeviceLoop:
    """Everything that happens on the device thread. `run` is its whole life."""

    def __init__(
        self,
        config: EngineConfig,
        adapter: PipelineAdapter,
        inbox: Inbox,
        ledger: Ledger,
        lifecycle: Lifecycle,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._adapter = adapter
        self._inbox = inbox
        self._ledger = ledger
        self._lifecycle = lifecycle
        self._clock = clock
        self._calls: deque[Call] = deque()
        self._stopping = False
        self._capabilities: Capabilities | None = None
        #: what ties a checkpoint to this model; None in request mode
        self.model: str | None = None
        self.counters = Counters()
        self.pace = Pace()
        self._finisher = Finisher(ledger, clock, self._spoiled)
        self._serve_batches()

    def _serve_batches(self) -> None:
        scheduler = Scheduler(_policy(self._config))
        self.scheduler: Scheduler | StepScheduler = scheduler
        self.runner: BatchRunner | StepRunner = BatchRunner(
            self._adapter,
            self._ledger,
            scheduler,
            self.counters,
            self.pace,
            self._clock,
            self._poll,
            self._finisher,
        )

    def _serve_steps(self, capabilities: Capabilities) -> None:
        scheduler = StepScheduler(_policy(self._config))
        parts = (self._config.model, self._config.revision, capabilities.model_class, capabilities.dtype)
        model = " ".join(map(str, (*parts, capabilities.versions)))
        if self._config.loras:  # a name may stand for another file on another node
            model += f" {sorted(self._config.loras.items())}"
        self.model = model
        self.scheduler = scheduler
        self.runner = StepRunner(
            self._adapter,
            self._ledger,
            scheduler,
            self.counters,
            self.pace,
            self._clock,
            model,
            self._finisher,
        )

    def run(self, ready: Future[Capabilities]) -> None:
        """Load, serve, tidy up. `ready` gets the model's capabilities, or the error that kept it from loading."""
        self._lifecycle.live(ready, self._load, self._serve, self._tear_down)

    def _load(self) -> Capabilities:
        capabilities = self._adapter.load()
        if capabilities.mode == "step":
            self._serve_steps(capabilities)
        elif capabilities.max_rows is not None:
            self._limit(capabilities.max_rows)
        log.info("%s is served in %s mode: %s", self._config.model, capabilities.mode, capabilities.mode_reason)
        self._capabilities = self._warm(capabilities) if self._config.warmup else capabilities
        return self._capabilities

    def _warm(self, capabilities: Capabilities) -> Capabilities:
        """With what a row took of the device while it ran."""
        peak = PeakMemory(capabilities.device)
        warm_up(self._adapter, capabilities)
        weights = capabilities.memory_bytes
        return replace(capabilities, memory_bytes=None if weights is None else weights + peak.bytes)

    def _limit(self, max_rows: int) -> None:
        self.scheduler.limit(max_rows)
        if max_rows < self._config.max_batch_rows:
            words = "%s: max_batch_rows is %d, not %d; its rows would not be what they are alone"
            log.warning(words, self._config.model, max_rows, self._config.max_batch_rows)

    def _serve(self) -> None:
        while True:
            self._poll()
            self._run_calls()
            if self._stopping:
                return
            paused = self._lifecycle.state is State.PAUSED
            worked = not paused and self.runner.work()
            if not worked and (command := self._inbox.get(self._sleep_s(paused))) is not None:
                self._handle(command)

    def _sleep_s(self, paused: bool) -> float | None:
        wakes = (None if paused else self.scheduler.wake_s(), self._ledger.next_deadline_s())
        wake_s = min((wake for wake in wakes if wake is not None), default=None)
        return None if wake_s is None else wake_s - self._clock()

    def _poll(self) -> None:
        """Take all commands that are there and end what is past its deadline; never blocks."""
        while (command := self._inbox.get(0)) is not None:
            self._handle(command)
        for account in self._ledger.expired(self._clock()):
            request_id, deadline_s = account.request.request_id, account.request.deadline_s
            message = f"not done within its deadline of {deadline_s:g} s"
            self.runner.end(account, Failed(request_id, "deadline_exceeded", message))

    def _handle(self, command: Command) -> None:
        match command:
            case Submit(request, submitted_s):
                self._admit(request, submitted_s)
            case Wave(submits):
                for submit in submits:
                    self._admit(submit.request, submit.submitted_s)
            case Abort(requests):
                for request in requests:
                    self._abort(self._ledger.of(request))
            case Call():
                self._calls.append(command)
            case Spoiled(account, error):
                if not isinstance(error, RequestError):
                    self._adapter.probe()
                self.runner.end(account, failure(account.request.request_id, error))
            case Stop():
                self._stopping = True
            case Heard():
                raise AssertionError("this engine has no ranks")

    def _spoiled(self, account: Account, error: Exception) -> None:
        """On the finisher's thread."""
        self._put(Spoiled(account, error))

    def _put(self, command: Command) -> None:
        """From any thread."""
        with suppress(EngineClosed):  # closing has ended every request
            self._inbox.put(command)

    def _admit(self, request: DiffusionRequest, submitted_s: float) -> None:
        account = self._ledger.of(request)
        if account is None:
            return
        try:
            key = self._adapter.batch_key(request)
            if (late := account.too_late(self.pace.least_s(key), self._clock())) is not None:
                self.runner.end(account, late)
                return
            if (missing := self._adapter.prepare(request)) is not None:
                missing.add_done_callback(lambda _: self._put(Submit(request, submitted_s)))
                return
            self.scheduler.submit(request, key, submitted_s)
        except RequestError as error:
            self.runner.end(account, failure(request.request_id, error))
        except Exception as error:
            log.exception("no batch key for request %s", request.request_id)
            self.runner.end(account, failure(request.request_id, error))

    def _abort(self, account: Account | None) -> None:
        if account is not None:
            self.runner.end(account, Aborted(account.request.request_id, account.step))

    def stats(self) -> EngineStats:
        """See Executor."""
        counters, found = self.counters, self._capabilities
        return EngineStats(
            waiting_rows=self.scheduler.waiting_rows,
            running_rows=counters.running_rows,
            batches=counters.batches,
            rows_done=counters.rows_done,
            mean_batch_rows=counters.mean_batch_rows,
            step_ms=counters.step_ms,
            device=found.device if found else self._config.device,
            dtype=found.dtype if found else self._config.dtype,
            model=self._config.model,
            mode=found.mode if found else self._config.mode,
            state=self._lifecycle.state.value,
            max_rows=self.scheduler.max_rows_in_all,
            step_rows=counters.step_rows,
            batch_rows=counters.batch_rows,
            step_seconds=counters.step_seconds,
            step_counts=tuple(counters.step_counts),
            rows_counts=tuple(counters.rows_counts),
        )

    def groups(self) -> tuple[RunningGroup, ...]:
        """See Executor."""
        return self.runner.groups()

    def memory(self) -> DeviceMemory | None:
        """See Executor."""
        return device_memory(self.stats().device)

    def call(
        self,
        method: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        rank: int | None,
        timeout_s: float | None,
    ) -> Callable[[], object]:
        """See Executor. This is rank 0 of one."""
        methods = self._adapter.methods()
        if method not in methods:
            raise ValueError(f"unknown method {method!r}; there are: {', '.join(sorted(methods))}")
        if rank not in (None, 0):
            raise ValueError(f"there is no rank {rank}: this engine has one device")
        return partial(methods[method], *args, **kwargs)

    def profile(self, start: bool, prefix: str) -> Callable[[], object]:
        """See Executor."""
        method, args = ("profile_start", (prefix,)) if start else ("profile_stop", ())
        return self.call(method, args, {}, rank=None, timeout_s=None)

    def pause(self) -> None:
        """On the device thread: see DiffusionEngine.pause."""
        self._lifecycle.move(State.PAUSED)

    def resume(self) -> None:
        """On the device thread."""
        self._lifecycle.move(State.RUNNING)

    def export(self, request_id: str, timeout_s: float | None = None) -> Checkpoint | None:
        """On the device thread, at once: see DiffusionEngine.export."""
        account = self._ledger.find(request_id)
        if account is None or not isinstance(self.runner, StepRunner):
            return None
        checkpoint = self.runner.export(account.request)
        self._abort(account)  # here, or it would go on until whoever asked has the answer
        return checkpoint

    def _run_calls(self) -> None:
        if self._calls:
            self._finisher.settle()  # what ran before is told: no call finds a row that is neither under way nor done
        while self._calls and not self._stopping:
            call = self._calls.popleft()
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                call.future.set_result(call.function())
            except BaseException as error:
                call.future.set_exception(error)

    def _tear_down(self, cause: BaseException | None) -> None:
        """Leave nothing open: no stream, no call, no model. Runs once, on this thread, however the loop has ended."""
        died = cause is not None and self._lifecycle.state in (State.RUNNING, State.PAUSED)
        message = f"the engine died: {type(cause).__name__}: {cause}" if died else "the engine was closed"
        if died:
            log.critical("the device thread died", exc_info=cause)
        self._inbox.close(EngineDead(message) if died else EngineClosed(message))
        self._ledger.end_all(message)
        self._poll()
        for call in self._calls:
            if call.future.set_running_or_notify_cancel():
                call.future.set_exception(EngineClosed(message))
        try:
            self.runner.close()
            self._finisher.close(FINISH_S)
            self._adapter.close()
        except Exception:
            log.exception("the model did not close")
        self._lifecycle.move(State.DEAD if died else State.CLOSING)
        self._lifecycle.move(State.CLOSED)


def _policy(config: EngineConfig) -> SchedulerPolicy:
    return SchedulerPolicy(
        max_rows=config.max_batch_rows,
        wait_s=config.admission_wait_ms / 1000,
        look_ahead=config.look_ahead,
        max_passes=config.max_passes,
        ageing_s=config.ageing_s,
    )
