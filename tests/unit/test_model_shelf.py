"""The models of a worker, in threads: seats, waiting for a load, models that fail. Engines are fakes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from engine import DiffusionEngine, EngineConfig, ModelLoadError
from tasks.errors import ConfigError
from tasks.models import ModelSpec
from worker.model_shelf import ModelShelf, NotLoaded
from worker.shelf_policy import ShelfPolicy

MIB = 2**20
SOON_S = 10.0


def spec(name: str, **changes: Any) -> ModelSpec:
    return ModelSpec.model_validate({"name": name, "source": f"fake:memory_mb={changes.pop('mb', 60)}", **changes})


class Loader:
    """Makes engines, one after the other; `gate` holds the next, `trouble` fails those of a name."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.trouble: dict[str, Exception] = {}
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, spec: ModelSpec) -> DiffusionEngine:
        self.loaded.append(spec.name)
        assert self.gate.wait(SOON_S)
        if spec.name in self.trouble:
            raise self.trouble[spec.name]
        return DiffusionEngine.make_engine(EngineConfig(model=spec.source, warmup=False))


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def shelf_of(loader: Loader) -> Iterator[Callable[..., ModelShelf]]:
    with ExitStack() as stack:

        def made(*specs: ModelSpec, bound_mb: int | None = 100, **policy: float) -> ModelShelf:
            bound = None if bound_mb is None else bound_mb * MIB
            short = ShelfPolicy(**{"turn_s": 0.0, "linger_s": 0.0, **policy})
            shelf = ModelShelf(specs, loader, bound_bytes=bound, policy=short)
            stack.callback(shelf.close)
            stack.callback(loader.gate.set)
            shelf.fill()
            return shelf

        yield made


def sit(shelf: ModelShelf, name: str, stack: ExitStack, patience_s: float = SOON_S) -> bool:
    return stack.enter_context(shelf.seat(name, patience_s))


def engine_of(shelf: ModelShelf, name: str, on_wait: Callable[[], object] = lambda: None) -> DiffusionEngine:
    with shelf.using(name, lambda: None, on_wait) as engine:
        return engine


def test_all_that_fits_is_loaded_at_the_start_and_stays(shelf_of: Callable[..., ModelShelf], loader: Loader) -> None:
    shelf = shelf_of(spec("a"), spec("b"), bound_mb=None)
    assert loader.loaded == list(shelf) == ["a", "b"]
    assert shelf.is_filled
    with ExitStack() as stack:
        assert sit(shelf, "a", stack, 0)
        assert sit(shelf, "b", stack, 0)
    assert shelf.told("b") == {"state": "loaded", "loads": 1, "need_bytes": 60 * MIB, "keep": False}


def test_the_first_of_the_file_that_fit_and_those_to_keep(shelf_of: Callable[..., ModelShelf], loader: Loader) -> None:
    sizes = {"a": 40, "b": 50, "c": 40, "d": 10}
    shelf_of(*(spec(name, memory_mb=size, keep=name == "b") for name, size in sizes.items()))
    assert loader.loaded == ["b", "a", "d"]


def test_a_wanted_model_takes_the_place_of_an_idle_one(shelf_of: Callable[..., ModelShelf]) -> None:
    shelf = shelf_of(spec("a", memory_mb=60), spec("b", memory_mb=60))
    first = shelf["a"]
    with ExitStack() as stack:
        assert sit(shelf, "b", stack)
        assert engine_of(shelf, "b").stats().state == "running"
        assert (list(shelf), first.stats().state) == (["b"], "closed")
        assert shelf.told("a")["state"] == "out"


def test_a_model_with_seats_stays_until_they_are_given_up(shelf_of: Callable[..., ModelShelf], loader: Loader) -> None:
    shelf = shelf_of(spec("a", memory_mb=60), spec("b", memory_mb=60))
    with ExitStack() as held, ExitStack() as stack:
        assert sit(shelf, "a", held)
        with shelf.seat("b", 0.05) as seated:
            assert not seated
        with shelf.seat("a", 0.0) as seated:
            assert not seated, "its turn is over: it takes no more"
        assert engine_of(shelf, "a").stats().state == "running", "whoever sits may use it"
        held.close()
        assert sit(shelf, "b", stack)
        assert engine_of(shelf, "b").stats().state == "running"
    assert loader.loaded == ["a", "b"]


def test_a_seat_of_one_that_is_loading_waits_with_its_job(shelf_of: Callable[..., ModelShelf], loader: Loader) -> None:
    shelf = shelf_of(spec("a", memory_mb=60), spec("b", memory_mb=60))
    loader.gate.clear()
    waits: list[str] = []

    def on_wait() -> None:
        waits.append(shelf.told("b")["state"])
        loader.gate.set()

    with ExitStack() as stack:
        assert sit(shelf, "b", stack)
        assert engine_of(shelf, "b", on_wait).stats().state == "running"
    assert set(waits) == {"loading"}


def test_a_stop_ends_the_wait(shelf_of: Callable[..., ModelShelf], loader: Loader) -> None:
    shelf = shelf_of(spec("a", memory_mb=60), spec("b", memory_mb=60))
    loader.gate.clear()

    def stopped() -> None:
        raise InterruptedError

    with ExitStack() as stack:
        assert sit(shelf, "b", stack)
        with pytest.raises(InterruptedError), shelf.using("b", stopped, lambda: None):
            pass


def test_a_model_that_does_not_load_fails_its_jobs_and_nothing_else(
    shelf_of: Callable[..., ModelShelf], loader: Loader
) -> None:
    shelf = shelf_of(spec("a", memory_mb=60), spec("b", memory_mb=60))
    loader.trouble["b"] = ModelLoadError("cannot load b: no such file")
    loader.gate.clear()
    with ExitStack() as stack:
        assert sit(shelf, "b", stack), "while it is being loaded"
        loader.gate.set()
        with pytest.raises(NotLoaded, match="no such file"), shelf.using("b", lambda: None, lambda: None):
            pass
    assert shelf.told("b")["state"] == "failed"
    with ExitStack() as stack:
        assert not sit(shelf, "b", stack, 0.05), "not tried again at once"
        assert sit(shelf, "a", stack)
    assert loader.loaded == ["a", "b", "a"]


def test_one_that_was_thought_smaller_is_loaded_once_there_is_room(
    shelf_of: Callable[..., ModelShelf], loader: Loader
) -> None:
    """Without a word in the file, the first load tells how large it is: another has to go."""
    loader.trouble["b"] = ModelLoadError("cannot load b: OutOfMemoryError: CUDA out of memory")
    shelf = shelf_of(spec("a", memory_mb=60), spec("b"))
    assert (loader.loaded, list(shelf)) == (["a", "b"], ["a"])
    del loader.trouble["b"]
    with ExitStack() as stack:
        assert sit(shelf, "b", stack)
        assert engine_of(shelf, "b").stats().state == "running"
    assert (loader.loaded, list(shelf)) == (["a", "b", "b"], ["b"])
    assert shelf.told("b")["need_bytes"] == 60 * MIB, "as measured"


def test_what_could_never_fit_stops_the_start(shelf_of: Callable[..., ModelShelf]) -> None:
    with pytest.raises(ConfigError, match="SAFELIGHT_MODEL_MEMORY_MB: model b takes 120 MiB of 100"):
        shelf_of(spec("a"), spec("b", memory_mb=120))
    with pytest.raises(ConfigError, match="model b with a, which stays, takes 110 MiB"):
        shelf_of(spec("a", memory_mb=60, keep=True), spec("b", memory_mb=50))


def test_many_threads_and_more_models_than_room(shelf_of: Callable[..., ModelShelf]) -> None:
    """Each sits down only on a model that is there, for as long as it sits; all come to the end."""
    names = ["a", "b", "c"]
    shelf = shelf_of(*(spec(name, memory_mb=60) for name in names))
    wrong: list[str] = []

    def worker(index: int) -> None:
        for turn in range(4):
            name = names[(index + turn) % 3]
            with ExitStack() as stack:
                while not sit(shelf, name, stack, 0.2):
                    pass
                engine = engine_of(shelf, name)
                time.sleep(0.002)
                wrong.extend([name] if engine.stats().state != "running" or list(shelf) != [name] else [])

    threads = [threading.Thread(target=worker, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
