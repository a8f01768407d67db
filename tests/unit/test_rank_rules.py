"""The rules about ranks, without one: restarts, vigil, a request whose rank is lost, devices, merged figures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import (
    Aborted,
    Chunk,
    DeviceMemory,
    DiffusionEngine,
    DiffusionRequest,
    EngineConfig,
    EngineStats,
    Failed,
    Media,
    OutputStream,
    Preview,
    Progress,
    RunningGroup,
    SamplingParams,
    Started,
)
from engine.executors.cases import Case
from engine.executors.merged import merged_groups, merged_memory, merged_stats
from engine.executors.rank import rank_config
from engine.executors.restarts import LONGEST_S, PROOF_S, Restarts
from engine.executors.spawn import visible_device
from engine.executors.vigil import LOADING_SILENCE_S, Vigil
from engine.ledger import Account
from engine.testing import FakeAdapter


class TestRestarts:
    def test_they_come_later_and_later_and_then_not_at_all(self) -> None:
        restarts = Restarts(1.0, 3)
        assert [restarts.lost(0.0) for _ in range(5)] == [1.0, 2.0, 4.0, None, None]

    def test_a_rank_that_has_served_begins_a_new_row(self) -> None:
        restarts = Restarts(1.0, 1)
        assert [restarts.lost(served_s) for served_s in (0.0, PROOF_S, PROOF_S, 0.0)] == [1.0, 1.0, 1.0, None]

    def test_no_pause_is_longer_than_a_minute(self) -> None:
        restarts = Restarts(1.0, 100)
        assert max(filter(None, (restarts.lost(0.0) for _ in range(100)))) == LONGEST_S


class TestVigil:
    def test_silence(self) -> None:
        vigil = Vigil(10.0, 100.0, heard_s=5.0, loading=False)
        assert (vigil.due_s(), vigil.complaint(14.9)) == (15.0, None)
        assert vigil.complaint(15.0) == "no sign of life for 10 s"

    def test_a_step_that_does_not_come(self) -> None:
        vigil = Vigil(10.0, 100.0, heard_s=195.0, moved_s=100.0, loading=False)
        assert (vigil.due_s(), vigil.complaint(199.0)) == (200.0, None)
        assert vigil.complaint(200.0) == "its requests have not moved for 100 s"

    def test_a_process_that_loads_may_be_silent_for_longer(self) -> None:
        vigil = Vigil(10.0, 100.0, heard_s=0.0)
        assert vigil.complaint(LOADING_SILENCE_S - 1) is None
        assert vigil.complaint(LOADING_SILENCE_S) is not None

    def test_who_was_stopped_himself_forgives(self) -> None:
        vigil = Vigil(10.0, 20.0, heard_s=0.0, moved_s=0.0, loading=False)
        vigil.forgive(50.0)
        assert (vigil.complaint(55.0), vigil.due_s()) == (None, 60.0)


def case(*, alone: bool = False) -> Case:
    request = DiffusionRequest(request_id="a", prompt="p", params=SamplingParams(height=8, width=8, seed=0))
    made = Case(Account(request, OutputStream("a", lambda: None), submitted_s=0.0))
    made.hand_to(0, "a#0", alone=alone)
    return made


MEDIA = Media(kind="audio", seed=0, samples=np.zeros((1, 1), np.float32), sample_rate=1)


class TestLostUnderARequest:
    def test_one_that_had_not_begun_waits_again(self) -> None:
        assert case().lose("gone") is None
        assert case(alone=True).lose("gone") is None

    def test_one_that_had_begun_in_company_waits_again(self) -> None:
        one = case()
        one.hear(Started("a#0", 2), 1.0)
        one.hear(Progress("a#0", "denoising", 3, 4), 1.0)
        one.hear(Preview("a#0", 3, None), 1.0)  # type: ignore[arg-type]
        assert one.lose("gone") is None

    def test_one_that_ran_alone_is_taken_for_the_cause(self) -> None:
        one = case(alone=True)
        one.hear(Started("a#0", 1), 1.0)
        assert one.lose("gone") == Failed("a", "internal", "gone, while it ran alone there", retryable=True)

    def test_what_was_handed_over_is_not_made_again(self) -> None:
        one = case()
        one.hear(Chunk("a#0", 0, 2, MEDIA), 1.0)
        assert one.lose("gone") == Failed(
            "a", "internal", "gone, and some of its outputs had been handed over", retryable=True
        )

    def test_one_that_was_to_end_has_ended(self) -> None:
        one = case()
        one.hear(Progress("a#0", "denoising", 3, 4), 1.0)
        one.aborting = True
        assert one.lose("gone") == Aborted("a", 3)

    def test_its_caller_hears_nothing_twice(self) -> None:
        one = case()
        assert one.hear(Started("a#0", 2), 1.0) == Started("a", 2)
        assert one.hear(Progress("a#0", "denoising", 2, 4), 1.0) == Progress("a", "denoising", 2, 4)
        one.lose("gone")
        one.hand_to(1, "a#1", alone=True)
        again: list[Any] = [Started("a#1", 1), *(Progress("a#1", "denoising", step, 4) for step in range(4))]
        assert [event for event in (one.hear(event, 2.0) for event in again) if event] == [
            Progress("a", "denoising", 3, 4)
        ]
        assert one.account.started_s == 1.0


class TestDevices:
    @pytest.mark.parametrize(
        ("device", "visible", "expected"),
        [
            ("cuda:1", None, ("cuda", {"CUDA_VISIBLE_DEVICES": "1"})),
            ("cuda:1", "4, GPU-ab", ("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-ab"})),
            ("cuda:2", "4,5", ("cuda:2", {})),
            ("cuda", "4,5", ("cuda", {})),
            ("cpu", None, ("cpu", {})),
        ],
    )
    def test_a_rank_sees_its_own_card_alone(self, device: str, visible: str | None, expected: object) -> None:
        environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        assert visible_device(device, environment) == expected

    def test_a_ranks_engine_is_one_of_its_own_process(self) -> None:
        config = EngineConfig(model="m", executor="process", devices=("cpu", "cpu"), engine_backend=DiffusionEngine)
        made = rank_config(config, "cpu")
        assert (made.executor, made.devices, made.device) == ("inline", (), "cpu")
        assert made.engine_backend == "engine.core.DiffusionEngine"

    def test_a_class_that_no_other_process_finds_is_refused(self) -> None:
        class Local(DiffusionEngine):
            pass

        with pytest.raises(ValueError, match="must be a class of a module"):
            rank_config(EngineConfig(model="m", executor="process", engine_backend=Local), "cpu")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"devices": ("cpu",)}, 'devices needs executor = "process"'),
            ({"executor": "thread"}, "executor must be one of 'inline', 'process'"),
            ({"executor": "process", "devices": ("cpu",), "device": "cpu"}, "exclude each other"),
            ({"silence_s": 0.0}, "silence_s must be above 0"),
            ({"max_restarts": -1}, "max_restarts must be at least 0"),
        ],
    )
    def test_what_cannot_be_is_refused(self, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            EngineConfig(**{"model": "m", **changes})

    def test_an_adapter_that_is_given_cannot_move(self) -> None:
        with pytest.raises(ValueError, match="cannot serve in other processes"):
            DiffusionEngine.make_engine(EngineConfig(model="fake:", executor="process"), adapter=FakeAdapter())


def stats(**changes: Any) -> EngineStats:
    zero = EngineStats(
        waiting_rows=0,
        running_rows=0,
        batches=0,
        rows_done=0,
        mean_batch_rows=0.0,
        step_ms=None,
        device="cpu",
        dtype="float32",
        model="m",
        mode="step",
        state="running",
    )
    return replace(zero, **changes)


def test_figures_of_ranks_add_up() -> None:
    ranks = [
        stats(
            waiting_rows=1, running_rows=2, batches=2, batch_rows=6, step_ms=10.0, step_rows=3.0, step_counts=(1,) * 15
        ),
        stats(running_rows=1, batches=2, batch_rows=2, step_ms=20.0, step_rows=1.0),
        stats(batches=1, batch_rows=2),
    ]
    merged = merged_stats(
        [replace(one, step_counts=one.step_counts or (0,) * 15, rows_counts=(1,) * 9) for one in ranks],
        stats(waiting_rows=4, max_rows=8),
    )
    assert (merged.waiting_rows, merged.running_rows, merged.max_rows, merged.batches) == (5, 3, 8, 5)
    assert (merged.mean_batch_rows, merged.step_ms, merged.step_rows) == (2.0, 15.0, 2.0)
    assert merged.step_counts == (1,) * 15 and merged.rows_counts == (3,) * 9
    assert merged_groups([[RunningGroup(2, {"h": 8})], [RunningGroup(1, {"h": 8}), RunningGroup(1, {"h": 16})]]) == (
        RunningGroup(3, {"h": 8}),
        RunningGroup(1, {"h": 16}),
    )
    assert merged_memory({"a": DeviceMemory(1, 2), "b": DeviceMemory(3, 4)}) == DeviceMemory(4, 6)
    assert merged_memory({}) is None
