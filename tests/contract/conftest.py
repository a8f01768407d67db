"""What contract tests share. torch is imported when a test asks for it: those of the stores run without."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import redis

from tests.contract.stores import Lab, memory_lab, redis_lab


@pytest.fixture(params=["memory", "redis"])
def make_lab(request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """Over each store: a new and empty lab at each call."""
    if request.param == "memory":
        yield memory_lab
        return
    url = request.getfixturevalue("redis_url")
    with redis.Redis.from_url(url) as client:

        def make(**options: object) -> Lab:
            client.flushdb()
            return redis_lab(url, **options)

        yield make


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()


@pytest.fixture(scope="module")
def one_thread() -> None:
    """Of OpenMP, here as in the engines: bits depend on it, and on a busy machine more of them are far slower."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """By family, as the `Model` of the test's own module serves it."""
    from tests.contract.random_models import models_in

    with models_in(tmp_path_factory, request.module.Model) as get:
        yield get


@pytest.fixture(params=["stable_diffusion", "stable_diffusion_3", "flux"])
def model(request: pytest.FixtureRequest, models: Callable[[str], Any]) -> Any:
    return models(request.param)


@pytest.fixture
def sd(models: Callable[[str], Any]) -> Any:
    return models("stable_diffusion")


@pytest.fixture
def raws(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray[Any, Any]]:
    """Each row as its pipeline gave it, before it is rounded, by its request's id."""
    from engine.adapters import whole

    seen: dict[str, np.ndarray[Any, Any]] = {}
    made = whole.media

    def watched(raw: Any, row: Any, pipeline: Any) -> Any:
        seen[row.request.request_id] = np.array(raw, dtype=np.float64)
        return made(raw, row, pipeline)

    monkeypatch.setattr(whole, "media", watched)
    return seen
