"""An engine over two ranks, each a process: what its caller sees is what an engine in this process shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from PIL import Image

from engine import (
    Aborted,
    Checkpoint,
    Chunk,
    Completed,
    DiffusionEngine,
    EngineClosed,
    EngineConfig,
    Failed,
    InvalidRequest,
    Preview,
    Progress,
    Started,
)
from engine.executors.messages import Said, Told
from engine.inbox import Heard
from tests.integration.ranks import (
    FAKE,
    SOON_S,
    all_up,
    holder,
    is_gone,
    pixels,
    ranks_of,
    request,
    running,
    same,
    soon,
    wait_for_step,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[DiffusionEngine]:
    yield from running()


@pytest.fixture(scope="module")
def inline() -> Iterator[DiffusionEngine]:
    with DiffusionEngine.make_engine(EngineConfig(model=FAKE, mode="step", warmup=False)) as made:
        yield made


def test_pictures_are_the_same_to_the_last_bit(engine: DiffusionEngine, inline: DiffusionEngine) -> None:
    wanted = [
        request(f"r{i}", seed=i, height=8 * (1 + i % 2), num_outputs=1 + i % 3, guidance_scale=i) for i in range(9)
    ]
    wanted.append(request("with image", image=Image.new("RGB", (8, 8), (1, 2, 3)), strength=0.5))
    streams = [engine.submit(one) for one in wanted]
    ends = [stream.result(SOON_S) for stream in streams]
    for one, end in zip(wanted, ends, strict=True):
        assert same(pixels(end), pixels(inline.submit(one).result(SOON_S))), one.request_id


def test_different_requests_run_on_both_at_once(engine: DiffusionEngine) -> None:
    streams = [engine.submit(request(f"d{i}", num_inference_steps=500)) for i in range(4)]
    for stream in streams:
        wait_for_step(stream, 1)
    assert sorted(len(rank.cases) for rank in ranks_of(engine)) == [2, 2]
    soon(lambda: sum(group.rows for group in engine.running_groups()) == 4, "a beat tells of all rows")
    engine.abort([f"d{i}" for i in range(4)])
    ends = [stream.result(SOON_S) for stream in streams]
    assert all(isinstance(end, Aborted) and end.step and end.metrics for end in ends)
    soon(lambda: engine.stats().running_rows == 0, "a beat tells of none")
    assert (engine.stats().max_rows, engine.stats().device) == (16, "cpu,cpu")


def test_events_come_in_order_and_under_the_callers_id(engine: DiffusionEngine) -> None:
    events = list(engine.submit(request("e", num_outputs=2, preview_every=2)))
    assert events[0] == Started("e", 2) and {event.request_id for event in events} == {"e"}
    steps = [event.step for event in events if isinstance(event, Progress)]
    assert steps == sorted(steps) and steps[-1] == 4
    assert [event.index for event in events if isinstance(event, Chunk)] == [0]
    assert [event.step for event in events if isinstance(event, Preview)] == [2, 4]
    end = events[-1]
    assert isinstance(end, Completed) and end.metrics.total_ms >= end.metrics.denoise_ms > 0


def test_a_refused_request_fails_alone(engine: DiffusionEngine) -> None:
    bad, good = engine.submit(request("bad", height=9)), engine.submit(request("good"))
    end = bad.result(SOON_S)
    assert isinstance(end, Failed) and end.error_type == InvalidRequest.error_type
    assert isinstance(good.result(SOON_S), Completed)


class TestCalls:
    def test_all_ranks_or_one(self, engine: DiffusionEngine) -> None:
        assert engine.collective_rpc("echo", args=(1, "x"), kwargs={"k": [2]}) == [((1, "x"), {"k": [2]})] * 2
        assert engine.collective_rpc("thread", rank=1) == "safelight-device"

    def test_what_is_wrong_with_a_call_is_told(self, engine: DiffusionEngine) -> None:
        with pytest.raises(ValueError, match="unknown method 'nothing'; there are: echo"):
            engine.collective_rpc("nothing")
        with pytest.raises(ValueError, match="there is no rank 2"):
            engine.collective_rpc("echo", rank=2)
        with pytest.raises(TypeError, match="cannot go to or come from a rank"):
            engine.collective_rpc("echo", args=(threading.Lock(),))

    def test_a_call_that_has_not_begun_in_time_never_will(self, engine: DiffusionEngine) -> None:
        long = threading.Thread(target=engine.collective_rpc, args=("sleep",), kwargs={"args": (0.5,), "rank": 0})
        long.start()
        with pytest.raises(TimeoutError):
            engine.collective_rpc("profile_start", timeout=0.05, args=("late",), rank=0)
        long.join()
        with pytest.raises(IndexError):
            engine.collective_rpc("profile_stop", rank=0)

    def test_a_profile_each(self, engine: DiffusionEngine) -> None:
        engine.profile(True, "p")
        assert engine.profile(False) == ["p_rank0", "p_rank1"]

    def test_a_pause_holds_all_ranks(self, engine: DiffusionEngine) -> None:
        streams = [engine.submit(request(f"p{i}", num_inference_steps=100)) for i in range(2)]
        for stream in streams:
            wait_for_step(stream, 1)
        engine.pause(SOON_S)
        late = engine.submit(request("late"))
        before = engine.collective_rpc("echo")
        assert not late.done and before == [((), {})] * 2
        engine.resume(SOON_S)
        assert all(isinstance(stream.result(SOON_S), Completed) for stream in (*streams, late))


def test_a_checkpoint_goes_from_one_rank_to_the_other(engine: DiffusionEngine, inline: DiffusionEngine) -> None:
    wanted = request("c", num_inference_steps=150, seed=3)
    stream = engine.submit(wanted)
    wait_for_step(stream, 5)
    first = holder(engine, "c")
    checkpoint = engine.export("c", SOON_S)
    assert checkpoint is not None and checkpoint.step >= 5
    assert isinstance(stream.result(SOON_S), Aborted)
    filler = engine.submit(request("filler", num_inference_steps=500))
    wait_for_step(filler, 1)
    assert holder(engine, "filler") is first, "the other one is free"
    again = request("c", num_inference_steps=150, seed=3, resume=Checkpoint.from_bytes(checkpoint.to_bytes()))
    resumed = engine.submit(again)
    wait_for_step(resumed, checkpoint.step + 1)
    assert holder(engine, "c") is not first
    end = resumed.result(SOON_S)
    assert isinstance(end, Completed) and end.warnings == ()
    assert same(pixels(end), pixels(inline.submit(wanted).result(SOON_S)))
    engine.abort("filler")


def test_what_an_earlier_incarnation_or_ticket_says_is_refused(engine: DiffusionEngine) -> None:
    stream = engine.submit(request("s", num_inference_steps=200))
    wait_for_step(stream, 1)
    rank = holder(engine, "s")
    (ticket,) = rank.cases
    lie = Failed(ticket, "internal", "a lie")
    refused = engine._loop.refused  # type: ignore[attr-defined]
    for said in (Said(rank.epoch - 1, Told(ticket, lie)), Said(rank.epoch, Told("s#old", lie))):
        engine._inbox.put(Heard(rank.index, said))
    assert isinstance(stream.result(SOON_S), Completed)
    assert engine._loop.refused == refused + 2  # type: ignore[attr-defined]


def test_an_abort_of_one_that_waits_in_front_ends_it_at_once(engine: DiffusionEngine) -> None:
    busy = [engine.submit(request(f"b{i}", num_inference_steps=500)) for i in range(16)]
    for stream in busy:
        wait_for_step(stream, 1)
    waits = engine.submit(request("w"))
    soon(lambda: engine.stats().waiting_rows >= 1, "it waits in front")
    waits.close()
    assert waits.result(SOON_S) == Aborted("w")
    late = engine.submit(request("l", deadline_s=0.05)).result(SOON_S)
    assert isinstance(late, Failed) and late.error_type == "deadline_exceeded"
    for stream in busy:
        stream.close()
    assert all(isinstance(stream.result(SOON_S), Aborted) for stream in busy)


def test_the_end_with_busy_ranks_leaves_nothing(engine: DiffusionEngine) -> None:
    """The last of this module."""
    all_up(engine)
    pids = [rank.pid for rank in ranks_of(engine)]
    streams = [engine.submit(request(f"z{i}", num_inference_steps=10_000)) for i in range(20)]
    wait_for_step(streams[0], 1)
    engine.close()
    ends = [stream.result(SOON_S) for stream in streams]
    assert all(isinstance(end, Failed) and end.retryable for end in ends)
    assert all(pid is not None and is_gone(pid) for pid in pids)
    with pytest.raises(EngineClosed):
        engine.submit(request("after"))
    assert engine.stats().state == "closed"
