"""Table 4: from the call of an abort until the row works for others, with so many requests in flight.

python -m bench.peers.abort [--systems safelight,celery,…] [--depths 1,100,1000] [--trials 5] [--steps 50]
    [--model bundled|small] [--json FILE]

One system stands at a time. In flight is what was sent and has not ended; servers without a queue are not asked for
more connections than 100. A row that runs on to its end is tried once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.peers import tables
from bench.peers.abort_figures import Step, Trial, judge, outcome, parse_steps
from bench.peers.command import show
from bench.peers.doors import Door, SafelightDoor, open_door
from bench.peers.load import SIZES, WARM_UPS, names, save_model, warm_up
from bench.peers.systems import HTTP, NAMES, Place, running
from bench.peers.trace import Wanted

#: a row has begun for good
FIRST_STEPS = 5
LOOK_S = 0.01
#: the most connections that a server without a queue is asked to hold
MOST_CONNECTIONS = 100
#: celery-batches' window; all requests are alike here, so a short one fills its batches
WINDOW_S = 0.1


class Subject(Protocol):
    """A system under trial. `fill` brings the requests in flight up to a number; `trial` aborts one that runs."""

    async def fill(self, depth: int) -> None: ...

    async def trial(self, depth: int) -> Trial: ...

    async def drop(self) -> None: ...


class Requests:
    """Equal requests with ids of their own."""

    def __init__(self, size: int, steps: int) -> None:
        self.steps = steps
        self._size = size
        self._made = 0

    def another(self) -> Wanted:
        self._made += 1
        return Wanted(f"a{self._made}", "a red house", self._size, self.steps, self._made)


class Logged:
    """A system of plain diffusers: its steps are in a log."""

    def __init__(self, name: str, door: Door, log: Path, requests: Requests) -> None:
        self._name, self._door, self._log, self._requests = name, door, log, requests
        self._calls: dict[str, asyncio.Task[bytes]] = {}

    def _send(self) -> asyncio.Task[bytes]:
        wanted = self._requests.another()
        call = self._calls[wanted.id] = asyncio.create_task(self._door.render(wanted))
        call.add_done_callback(lambda done: self._ended(wanted.id, done))
        return call

    def _ended(self, request_id: str, call: asyncio.Task[bytes]) -> None:
        """An aborted one may end with an error, which is what was asked for."""
        self._calls.pop(request_id, None)
        if not call.cancelled():
            call.exception()

    async def fill(self, depth: int) -> None:
        while len(self._calls) < depth:
            self._send()

    def _steps(self) -> list[Step]:
        return parse_steps(self._log.read_text("utf-8"))

    async def _target(self) -> str:
        """One that has begun and has at least half of its steps to go."""
        while True:
            steps = self._steps()
            for row in sorted(steps[-1].ids if steps else ()):
                done = sum(row in step.ids for step in steps)
                if row in self._calls and FIRST_STEPS <= done <= self._requests.steps // 2:
                    return row
            await asyncio.sleep(LOOK_S)

    async def trial(self, depth: int) -> Trial:
        target = await self._target()
        called_s = time.monotonic()
        await self._door.abort(target)
        waiting = self._send()  # whom the free row could serve
        name = (self._name, self._door.how, depth)
        while (seen := judge(self._steps(), target, called_s, self._requests.steps, name)) is None:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        if depth == 1:
            await asyncio.wait([waiting])
        return seen

    async def drop(self) -> None:
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class Own:
    """Safelight, which tells itself: events of progress before the call, `done` after it."""

    def __init__(self, door: SafelightDoor, requests: Requests) -> None:
        self._door, self._client, self._requests = door, door.client, requests
        self._live: list[str] = []

    async def fill(self, depth: int) -> None:
        missing = [self._requests.another() for _ in range(depth - len(self._live))]
        if missing:
            jobs = await self._client.submit_many([self._door.request(one) for one in missing])
            self._live += [job.id for job in jobs]

    async def _target(self) -> str:
        while True:
            for job_id in self._live[:16]:
                job = await self._client.get(job_id)
                if job.status.is_terminal:
                    self._live.remove(job_id)
                elif FIRST_STEPS <= job.progress.step <= self._requests.steps // 2:
                    return job_id
            await asyncio.sleep(LOOK_S)
            if not self._live:
                await self.fill(1)

    async def trial(self, depth: int) -> Trial:
        target = await self._target()
        before = await self._client.get(target)
        called_s = time.monotonic()
        await self._client.abort(target)
        ended = await self._client.wait(target, 600)
        freed_ms = 1000 * (time.monotonic() - called_s)
        steps = max(0, ended.progress.step - before.progress.step)
        self._live.remove(target)
        was_aborted = ended.status == "aborted"
        return Trial("safelight", self._door.how, depth, freed_ms if was_aborted else None, steps)

    async def drop(self) -> None:
        for job_id in self._live:
            await self._client.abort(job_id)


@contextlib.asynccontextmanager
async def subject(name: str, place: Place, options: argparse.Namespace) -> AsyncIterator[Subject]:
    """The system, started and warm; gone afterwards."""
    assert place.steps is not None
    size = SIZES[options.model][-1]
    with running(name, place) as system:
        door = open_door(system)
        try:
            await warm_up(door, (size, size), options.warm_ups)
            requests = Requests(size, options.steps)
            own = isinstance(door, SafelightDoor)
            made: Subject = Own(door, requests) if own else Logged(name, door, place.steps, requests)
            yield made
            await made.drop()
        finally:
            await door.close()


async def trials(name: str, place: Place, options: argparse.Namespace) -> list[Trial]:
    seen: list[Trial] = []
    async with subject(name, place, options) as tried:
        for depth in sorted(options.depths):
            if name in HTTP and depth > MOST_CONNECTIONS:
                continue
            for _ in range(options.trials):
                await tried.fill(depth)
                seen.append(await tried.trial(depth))
                if seen[-1].freed_ms is None:
                    break
            print(f"  {name}, {depth}: {outcome([one for one in seen if one.depth == depth])}", file=sys.stderr)
    return seen


def run(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table, and the trials behind it."""
    seen: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        model = save_model(options.model, Path(folder))
        for number, name in enumerate(options.systems):
            log = Path(folder) / f"steps-{number}"
            log.touch()
            seen += asyncio.run(trials(name, Place(model, Path(folder), WINDOW_S, log), options))
    record = {"steps": options.steps, "model": options.model, "trials": [trial.as_json() for trial in seen]}
    return tables.abort_table(seen), record


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=names, default=list(NAMES))
    parser.add_argument("--depths", type=lambda text: [int(part) for part in text.split(",")], default=[1, 100, 1000])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50, help="of each request")
    parser.add_argument("--warm-ups", type=int, default=WARM_UPS)
    parser.add_argument("--model", choices=sorted(SIZES), default="bundled")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args(arguments)


def main() -> None:
    show(parse(), run)


if __name__ == "__main__":
    main()
