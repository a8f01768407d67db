"""Table 3: a thousand clients that poll for the status of jobs, and a thousand that follow their events.

python -m bench.listeners [--clients 1000] [--seconds 20] [--every-s 4] [--quick]

One API process. An event's latency is the time from its id, which is Redis' clock, to the client's, all on one machine.
The clients are in this process: on two cores they and the API share what Redis leaves.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.http_clients import opened, polling
from bench.report import keep, options, quantile, say
from bench.stand import Servers, costless, servers
from bench.yardstick import cpu_s, yardstick_s
from tasks import Client
from tasks.job import Progress
from tasks.local.process import free_port
from tasks.local.servers import answers_ok

REQUEST = {"prompt": "a red boat at sunset, oil on canvas", "num_inference_steps": 20}
STEP = Progress(stage="denoising", step=5, num_steps=20, fraction=0.25)


def start_api(found: Servers) -> tuple[int, int]:
    """Its port and process id."""
    port = free_port()
    api = found.start("api", ["-m", "api_stub", "--port", str(port)], {"SAFELIGHT_LOG_LEVEL": "warning"})
    api.wait_ready(lambda: answers_ok(f"http://127.0.0.1:{port}/readyz"), timeout_s=60)
    return port, api.pid


def polled(port: int, pid: int, ids: list[str], clients: int, every_s: float, seconds: float) -> dict[str, float]:
    cpu = cpu_s(pid)
    taken = asyncio.run(polling(port, clients, [f"/v1/jobs/{job_id}" for job_id in ids], every_s, seconds))
    cpu_ms = 1000 * (cpu_s(pid) - cpu)
    return {
        "polls/s": len(taken) / seconds,
        "p50 ms": 1000 * quantile(taken, 0.5),
        "p99 ms": 1000 * quantile(taken, 0.99),
        "API ms a poll": cpu_ms / len(taken),
    }


class Followed:
    """Jobs that run, as far as the store knows, and clients that follow one each."""

    def __init__(self, client: Client, port: int, pid: int, ids: list[str]) -> None:
        self._store = client.store
        self._port, self._pid = port, pid
        self._attempts = {job_id: self._claim(job_id) for job_id in ids}
        self.heard: list[float] = []

    def _claim(self, job_id: str) -> int:
        claimed: Any = self._store.claim(job_id, "bench", 3600)
        return int(claimed.attempt)

    async def follow(self, clients: int, seconds: float) -> dict[str, float]:
        connections = await opened(self._port, clients)
        names = list(self._attempts)
        for number, one in enumerate(connections):
            one.ask(f"/v1/jobs/{names[number % len(names)]}/events")
        streams = [asyncio.create_task(one.stream(self._hear)) for one in connections]
        await asyncio.sleep(5)
        silent = cpu_s(self._pid)
        await asyncio.sleep(seconds / 4)
        silent = (cpu_s(self._pid) - silent) / (seconds / 4)
        self.heard.clear()
        cpu, told = cpu_s(self._pid), await self._tell(seconds)
        cpu = cpu_s(self._pid) - cpu
        heard = list(self.heard)
        for each in (*streams, *connections):
            each.cancel() if isinstance(each, asyncio.Task) else each.close()
        return {
            "events/s": len(heard) / seconds,
            "of those told": len(heard) / (told * clients / len(names)),
            "p50 ms": 1000 * quantile(heard, 0.5),
            "p99 ms": 1000 * quantile(heard, 0.99),
            "API CPU, silent": silent,
            "API ms an event": 1000 * max(0.0, cpu - silent * seconds) / len(heard),
        }

    def _hear(self, event_id: str) -> None:
        self.heard.append(max(0.0, time.time() - int(event_id.partition("-")[0]) / 1000))

    async def _tell(self, seconds: float) -> int:
        """A tenth of the jobs tell of a step each half second, as their workers would."""
        names, told, ends, turn = list(self._attempts), 0, time.monotonic() + seconds - 1, 0
        while time.monotonic() < ends:
            some = names[turn % 10 :: 10]
            report = {(job_id, self._attempts[job_id]): STEP for job_id in some}
            await asyncio.to_thread(self._store.report, report)
            told, turn = told + len(some), turn + 1
            await asyncio.sleep(0.5)
        await asyncio.sleep(1)
        return told


def main() -> None:
    chosen = options(
        __doc__,
        clients=(1000, 100, "of each kind"),
        seconds=(20.0, 4.0, "for each kind"),
        every_s=(4.0, 2.0, "between two polls of a client"),
    )
    unit = 1000 * yardstick_s()
    with servers(costless()) as found:
        client = found.client()
        port, pid = start_api(found)
        ids = [job.id for job in client.submit_many([REQUEST] * chosen.clients)]
        poll = polled(port, pid, ids, chosen.clients, chosen.every_s, chosen.seconds)
        follow = asyncio.run(Followed(client, port, pid, ids).follow(chosen.clients, chosen.seconds))
    say(f"{chosen.clients} clients that poll each {chosen.every_s:g} s.", list(poll), [list(poll.values())])
    say(f"{chosen.clients} clients that follow a job each.", list(follow), [list(follow.values())])
    keep(
        chosen.figures,
        {
            "listeners: API CPU of a poll, in yardsticks": poll["API ms a poll"] / unit,
            "listeners: API CPU of an event, in yardsticks": follow["API ms an event"] / unit,
            "listeners: events heard / told": follow["of those told"],
        },
    )


if __name__ == "__main__":
    main()
