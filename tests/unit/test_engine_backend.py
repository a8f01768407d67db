"""Which engine and which adapter `make_engine` builds, and what a configuration may not be."""

from typing import Any

import pytest

from engine import DiffusionEngine, EngineConfig, PipelineAdapter, resolve_engine_class
from engine.testing import FakeAdapter


class OwnAdapter(FakeAdapter):
    """What OwnEngine serves with."""


class OwnEngine(DiffusionEngine):
    """An engine of an operator's own."""

    @staticmethod
    def default_adapter(config: EngineConfig) -> PipelineAdapter:
        return OwnAdapter()


OWN = f"{__name__}.OwnEngine"


def config(**changes: Any) -> EngineConfig:
    return EngineConfig(**{"model": "fake:", "warmup": False, **changes})


@pytest.mark.parametrize(
    ("backend", "found"),
    [(None, DiffusionEngine), ("default", DiffusionEngine), (OwnEngine, OwnEngine), (OWN, OwnEngine)],
)
def test_a_backend_is_a_class_or_its_dotted_path(backend: str | type | None, found: type) -> None:
    assert resolve_engine_class(backend, DiffusionEngine) is found


@pytest.mark.parametrize(
    ("backend", "error", "words"),
    [
        ("nowhere.Engine", ValueError, "engine_backend nowhere.Engine cannot be found"),
        ("engine.core.NoSuchEngine", ValueError, "engine_backend engine.core.NoSuchEngine cannot be found"),
        ("fast", ValueError, "must be 'default' or a dotted path to a class, not 'fast'"),
        (".Engine", ValueError, "must be 'default' or a dotted path"),
        ("engine.core.Inbox", TypeError, "no subclass of DiffusionEngine"),
        ("engine.core.threading", TypeError, "no subclass of DiffusionEngine"),
        (dict, TypeError, "no subclass of DiffusionEngine"),
        (7, TypeError, "no subclass of DiffusionEngine"),
    ],
)
def test_anything_else_is_refused_in_words(backend: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_engine_class(backend, DiffusionEngine)


def test_make_engine_builds_the_backend_with_its_own_adapter() -> None:
    with DiffusionEngine.make_engine(config(engine_backend=OWN)) as engine:
        assert type(engine) is OwnEngine
        assert type(engine._adapter) is OwnAdapter


def test_a_subclass_is_its_own_default() -> None:
    with OwnEngine.make_engine(config(engine_backend="default")) as engine:
        assert type(engine) is OwnEngine


def test_an_adapter_that_is_given_overrides_the_class() -> None:
    given = FakeAdapter()
    with OwnEngine.make_engine(config(), adapter=given) as engine:
        assert engine._adapter is given


@pytest.mark.parametrize("bad", [None, "x", "4", 0, -1, 2.0, True])
def test_a_number_of_rows_that_is_none_is_no_number_of_rows(bad: Any) -> None:
    """The seed takes each of these for 1."""
    with pytest.raises(ValueError, match="max_batch_rows must be at least 1, not"):
        config(max_batch_rows=bad)


@pytest.mark.parametrize("mode", ["request", "step"])
def test_the_mode_decides_how_the_model_is_called(mode: Any) -> None:
    wanted = config(mode=mode)
    adapter = FakeAdapter(mode=mode)
    with DiffusionEngine.make_engine(wanted, adapter=adapter) as engine:
        assert engine.stats().mode == mode
        assert type(engine._loop.runner).__name__ == {"request": "BatchRunner", "step": "StepRunner"}[mode]
    assert wanted == config(mode=mode)
