"""engine.stream: one terminal event, whatever loop or thread listens."""

import asyncio
import threading
import time

import pytest

from engine import Aborted, Event, Failed, OutputStream, Progress, Started


class Stream:
    """A stream with a count of its closings."""

    def __init__(self) -> None:
        self.closings = 0
        self.stream = OutputStream("a", self._close)

    def _close(self) -> None:
        self.closings += 1
        self.stream.put(Aborted("a"))

    def put_later(self, *events: Event, after_s: float = 0.05) -> None:
        def run() -> None:
            for event in events:
                time.sleep(after_s)
                self.stream.put(event)

        threading.Thread(target=run, daemon=True).start()


@pytest.fixture
def made() -> Stream:
    return Stream()


STEP = Progress("a", "denoising", 1, 2)
END = Failed("a", "internal", "x")


def test_iteration_ends_after_the_terminal_event(made: Stream) -> None:
    for event in (Started("a", 1), STEP, END, STEP, Aborted("a")):
        made.stream.put(event)
    assert list(made.stream) == [Started("a", 1), STEP, END]
    assert list(made.stream) == []
    assert made.closings == 0


def test_waits_for_another_thread(made: Stream) -> None:
    made.put_later(STEP, END)
    assert list(made.stream) == [STEP, END]


def test_leaving_early_aborts(made: Stream) -> None:
    made.stream.put(STEP)
    for _ in made.stream:
        break
    assert made.closings == 1
    assert made.stream.result() == Aborted("a")


def test_an_exception_in_the_consumer_aborts(made: Stream) -> None:
    made.stream.put(STEP)
    with pytest.raises(ZeroDivisionError), made.stream:
        raise ZeroDivisionError
    assert made.closings == 1


def test_closing_a_finished_stream_does_nothing(made: Stream) -> None:
    made.stream.put(END)
    made.stream.close()
    assert made.closings == 0


def test_result_passes_over_the_rest_and_leaves_it(made: Stream) -> None:
    made.put_later(STEP, END)
    assert made.stream.result(5) == END
    assert list(made.stream) == [STEP, END]


def test_result_and_get_time_out_without_ending_the_request(made: Stream) -> None:
    with pytest.raises(TimeoutError):
        made.stream.result(0.01)
    with pytest.raises(TimeoutError):
        made.stream.get(0.01)
    assert made.closings == 0


def test_a_thin_stream_is_silent_between_the_beginnings_of_stages(made: Stream) -> None:
    made.stream.thin_out()
    steps = [Progress("a", "denoising", n, 3) for n in range(4)]
    last = Progress("a", "decoding", 3, 3)
    for event in (Started("a", 1), Progress("a", "encoding", 0, 3), *steps, last):
        made.stream.put(event)
    assert made.stream.latest == last
    made.stream.put(END)
    assert list(made.stream) == [Started("a", 1), Progress("a", "encoding", 0, 3), steps[0], last, END]


def test_a_step_wakes_nobody_who_listens_to_a_thin_stream(made: Stream) -> None:
    made.stream.thin_out()
    made.stream.put(STEP)
    assert made.stream.get() == STEP
    made.stream.put(later := Progress("a", "denoising", 2, 2))
    with pytest.raises(TimeoutError):
        made.stream.get(0.01)
    assert made.stream.latest == later


async def _collect(stream: OutputStream) -> list[Event]:
    return [event async for event in stream]


def test_async_iteration(made: Stream) -> None:
    made.put_later(STEP, END)
    assert asyncio.run(_collect(made.stream)) == [STEP, END]


def test_each_event_loop_is_woken_promptly() -> None:
    """Two `asyncio.run` in sequence: an iterator bound to the first loop would sleep through the second."""
    for _ in range(2):
        made = Stream()
        made.put_later(END)
        start = time.monotonic()
        assert asyncio.run(_collect(made.stream)) == [END]
        assert time.monotonic() - start < 3


def test_cancelling_the_async_consumer_aborts(made: Stream) -> None:
    async def run() -> None:
        task = asyncio.create_task(_collect(made.stream))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert made.closings == 1


def test_breaking_out_of_an_async_loop_aborts(made: Stream) -> None:
    async def run() -> None:
        async for _ in made.stream:
            break
        await asyncio.sleep(0.02)
        assert made.closings == 1

    made.stream.put(STEP)
    asyncio.run(run())


def test_a_closed_loop_does_not_disturb_the_device_thread(made: Stream) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(_collect(made.stream))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    made.stream.put(STEP)
    made.stream.put(END)
    assert made.stream.done
    task._log_destroy_pending = False  # type: ignore[attr-defined]
