"""The models of one worker: loaded when a job wants one, let go when another needs the room. Thread-safe.

A job takes a seat before it is claimed and keeps it until it needs the device no more; a model with seats stays. One
thread loads and lets go; `worker.shelf_policy` decides what and when.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from engine import DiffusionEngine
from tasks.model_room import MIB, Need
from tasks.models import ModelSpec
from worker.footprint import device_of, expected_bytes, require_fit, room_of
from worker.shelf_policy import ModelState, Move, ShelfPolicy, next_move

log = logging.getLogger(__name__)

Phase = Literal["out", "loading", "loaded", "leaving"]
Load = Callable[[ModelSpec], DiffusionEngine]

#: A wish that nobody has repeated for so long is over: its message went to another worker.
WISH_S = 5.0
#: Between two tries to load a model that did not load.
RETRY_S = 30.0
_POLL_S = 0.5
_CLOSE_S = 10.0


class NotLoaded(Exception):
    """The model is not here and will not be soon; the message says why, if anything is wrong."""


@dataclass(slots=True, eq=False)
class _Shelved:
    """What is known of one model; guarded by the shelf's condition."""

    spec: ModelSpec
    device: str
    need_bytes: int
    phase: Phase = "out"
    engine: DiffusionEngine | None = None
    seats: int = 0
    used_s: float = 0.0
    since_s: float = 0.0
    wanted_s: float | None = None
    asked_s: float = 0.0
    not_before_s: float = 0.0
    num_loads: int = 0
    trouble: str | None = None

    def state(self, now: float, elsewhere: frozenset[str]) -> ModelState:
        wanted = self.wanted_s is not None and now - self.asked_s < WISH_S and now >= self.not_before_s
        return ModelState(
            name=self.spec.name,
            device=self.device,
            need_bytes=self.need_bytes,
            keep=self.spec.keep,
            loaded=self.phase == "loaded",
            seats=self.seats,
            used_s=self.used_s,
            since_s=self.since_s,
            wanted_s=self.wanted_s if wanted else None,
            elsewhere=self.spec.name in elsewhere,
        )


class ModelShelf(Mapping[str, DiffusionEngine]):
    """As a mapping: the engines of the models that are loaded now."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        load: Load,
        *,
        bound_bytes: int | None = None,
        policy: ShelfPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._bound_bytes = bound_bytes
        self._policy = policy or ShelfPolicy()
        self._clock = clock
        self._changed = threading.Condition()
        self._models = {spec.name: _Shelved(spec, "cpu", 0) for spec in specs}
        self._closed: frozenset[str] = frozenset()
        self._elsewhere: frozenset[str] = frozenset()
        self._stopping = False
        #: All that fits was loaded: jobs may come.
        self.is_filled = False
        self._thread = threading.Thread(target=self._run, name="model-shelf", daemon=True)

    def __getitem__(self, name: str) -> DiffusionEngine:
        engine = self._models[name].engine
        if engine is None:
            raise KeyError(name)
        return engine

    def __iter__(self) -> Iterator[str]:
        return (name for name, model in list(self._models.items()) if model.engine is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def fill(self) -> None:
        """Load what fits, those to keep first, then in the file's order; then begin to follow the jobs' wishes.

        Raises `ConfigError` for a model that cannot fit, and whatever keeps one from loading.
        """
        for model in self._models.values():
            model.device, model.need_bytes = device_of(model.spec), expected_bytes(model.spec)
        needs: dict[str, list[Need]] = {}
        for model in self._models.values():
            needs.setdefault(model.device, []).append(Need(model.spec.name, model.need_bytes, model.spec.keep))
        require_fit(needs, self._bound_bytes)
        for model in sorted(self._models.values(), key=lambda model: not model.spec.keep):
            room = self._room(model.device)
            if room is not None and model.need_bytes > room and any(self._beside(model)):
                log.info("model %s is loaded when a job wants it: the others leave no room", model.spec.name)
                continue
            self._bring(model)
        self.is_filled = True
        self._thread.start()

    def close(self) -> None:
        """Let go of all models. One that is being loaded is left to the end of the process."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for model in self._models.values():
            if model.engine is not None:
                model.engine.close()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_S)

    @contextmanager
    def seat(self, name: str, patience_s: float = 0.0) -> Iterator[bool]:
        """Before a job is claimed: whether it may be. The model is loaded or being loaded, and stays while it is held.

        Yields False if its turn did not come in time; the wish for it is remembered for a while.
        """
        model = self._models[name]
        if not self._sit(model, patience_s):
            yield False
            return
        try:
            yield True
        finally:
            self._rise(model)

    @contextmanager
    def using(self, name: str, check: Callable[[], object], on_wait: Callable[[], object]) -> Iterator[DiffusionEngine]:
        """The engine, waited for if it is being loaded; `check` may raise to end the wait, of which `on_wait` hears.

        Raises `NotLoaded`.
        """
        model = self._models[name]
        with self._changed:
            model.seats += 1
        try:
            yield self._engine_of(model, check, on_wait)
        finally:
            self._rise(model)

    def note_elsewhere(self, names: Iterable[str]) -> None:
        """Which models other workers have loaded: no job has to wait for this one to change."""
        with self._changed:
            self._elsewhere = frozenset(names)
            self._changed.notify_all()

    @property
    def is_short(self) -> bool:
        """Whether something is wanted that is not here."""
        return any(model.wanted_s is not None for model in self._models.values())

    def told(self, name: str) -> dict[str, Any]:
        """For a beat. `state`: loaded, loading, leaving, out; `failed` is one that did not load and says why."""
        model = self._models[name]
        failed = model.phase == "out" and model.trouble is not None
        told: dict[str, Any] = {"state": "failed" if failed else model.phase, "loads": model.num_loads}
        told |= {"need_bytes": model.need_bytes, "keep": model.spec.keep}
        return {**told, "trouble": model.trouble} if failed else told

    def _sit(self, model: _Shelved, patience_s: float) -> bool:
        give_up_s = self._clock() + patience_s
        with self._changed:
            self._wish(model)
            while not self._has_seats(model):
                left_s = give_up_s - self._clock()
                if self._stopping or left_s <= 0:
                    return False
                self._changed.wait(left_s)
            model.wanted_s = None
            model.seats += 1
            return True

    def _wish(self, model: _Shelved) -> None:
        if self._has_seats(model):
            return
        model.asked_s = now = self._clock()
        if model.wanted_s is None:
            model.wanted_s = now
        self._changed.notify_all()

    def _has_seats(self, model: _Shelved) -> bool:
        return model.phase in ("loading", "loaded") and model.spec.name not in self._closed

    def _rise(self, model: _Shelved) -> None:
        with self._changed:
            model.seats -= 1
            model.used_s = self._clock()
            if self.is_short or self._stopping:  # else nobody waits for seats that get free
                self._changed.notify_all()

    def _engine_of(
        self, model: _Shelved, check: Callable[[], object], on_wait: Callable[[], object]
    ) -> DiffusionEngine:
        with self._changed:
            while model.phase == "loading" and not self._stopping:
                check()
                on_wait()
                self._changed.wait(_POLL_S)
            if model.engine is None or model.phase != "loaded":
                raise NotLoaded(model.trouble or f"model {model.spec.name} is not loaded here")
            return model.engine

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._once()
            except Exception:
                log.exception("the models' shelf: unexpected error; it goes on")
                time.sleep(_POLL_S)

    def _once(self) -> None:
        """Make the move that is due, or wait until there may be one."""
        with self._changed:
            move = self._next()
            if move.enters is None:
                self._changed.wait(None if move.again_s is None else max(0.0, move.again_s - self._clock()))
                return
            entering, leaving = self._models[move.enters], [self._models[name] for name in move.leaving]
            for model in leaving:
                model.phase = "leaving"
            entering.phase = "loading"
            self._changed.notify_all()
        for model in leaving:
            self._let_go(model)
        self._try(entering)

    def _next(self) -> Move:
        now = self._clock()
        for model in self._models.values():
            if model.wanted_s is not None and now - model.asked_s >= WISH_S:
                model.wanted_s = None
        states = [model.state(now, self._elsewhere) for model in self._models.values()]
        rooms = {model.device: self._room(model.device) for model in self._models.values()}
        move = next_move(
            states, {device: room for device, room in rooms.items() if room is not None}, self._policy, now
        )
        if move.closed != self._closed:
            self._closed = move.closed
            self._changed.notify_all()
        return move

    def _room(self, device: str) -> int | None:
        taken = sum(one.need_bytes for one in self._models.values() if one.device == device and one.engine is not None)
        return room_of(device, self._bound_bytes, taken)

    def _beside(self, model: _Shelved) -> Iterator[_Shelved]:
        return (
            one
            for one in self._models.values()
            if one is not model and one.engine is not None and one.device == model.device
        )

    def _let_go(self, model: _Shelved) -> None:
        log.info("model %s leaves for another", model.spec.name)
        assert model.engine is not None
        gc.unfreeze()  # it is garbage from now on
        model.engine.close()
        with self._changed:
            model.engine, model.phase = None, "out"
            self._changed.notify_all()

    def _try(self, model: _Shelved) -> None:
        """Whatever a model fails of, the others go on."""
        try:
            self._bring(model)
        except Exception as error:
            log.error("model %s cannot be loaded: %s", model.spec.name, error)

    def _bring(self, model: _Shelved) -> None:
        """Load it. One that does not fit beside the others stays out with a larger need; all else is raised."""
        with self._changed:
            model.phase = "loading"
        room = self._room(model.device)
        try:
            engine = self._load(model.spec)
        except BaseException as error:
            may_fit = "out of memory" in str(error) and room is not None and any(self._beside(model))
            with self._changed:
                model.phase = "out"
                if may_fit and room is not None:
                    model.need_bytes = max(model.need_bytes, room) + 1
                else:
                    model.trouble, model.not_before_s = str(error), self._clock() + RETRY_S
                self._changed.notify_all()
            if not may_fit:
                raise
            log.warning("model %s does not fit beside the others: %s", model.spec.name, error)
            return
        self._put(model, engine)

    def _put(self, model: _Shelved, engine: DiffusionEngine) -> None:
        measured = engine.capabilities.memory_bytes
        with self._changed:
            if model.spec.memory_mb is None and measured is not None:
                model.need_bytes = measured
            model.engine, model.phase, model.trouble = engine, "loaded", None
            model.num_loads += 1
            model.since_s = model.used_s = self._clock()
            self._changed.notify_all()
        # Models and the libraries that came with them stay: the collector of garbage need not look through them.
        gc.collect()
        gc.freeze()
        if self._stopping:
            engine.close()
        log.info("model %s is loaded and takes %d MiB", model.spec.name, model.need_bytes // MIB)
