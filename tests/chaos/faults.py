"""Does the faults of a plan, each at its time and for as long as planned."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter

from tests.chaos.plan import CALM, Fault
from tests.chaos.processes import Processes

log = logging.getLogger(__name__)


class Faults:
    """One thread for each fault that lasts, so that faults overlap as planned."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._threads: list[threading.Thread] = []
        self.done: Counter[str] = Counter()

    def run(self, faults: tuple[Fault, ...], began: float) -> None:
        """Blocks until the last has struck; `finish` waits until the last is over. A calm one may hold the rest up."""
        for fault in faults:
            if fault.kind in CALM:
                began += self._processes.wait_for_calm(began + fault.at_s)
            time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
            now_s, amount = time.monotonic() - began, f" by {fault.amount:+.0f} s" if fault.amount else ""
            log.info("%6.1f s: %s %s%s for %.1f s", now_s, fault.kind, fault.target, amount, fault.for_s)
            thread = threading.Thread(target=self._strike, args=(fault,), daemon=True)
            thread.start()
            self._threads.append(thread)
            self.done[fault.kind] += 1

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(60)
        self._processes.heal()

    def _strike(self, fault: Fault) -> None:
        there, (first, *rest) = self._processes, fault.kind.split()
        match first, rest:
            case "kill", ["worker", *calm]:
                there.kill_worker(fault.target, is_calm=bool(calm))
            case "kill", ["redis"]:
                there.kill_redis(fault.for_s)
            case "kill", ["clients"]:
                there.kill_clients()
            case "kill", _:
                there.send(fault.target, signal.SIGKILL)
            case "zombie", _:
                there.make_zombie(fault.target)
            case "freeze", [part]:
                if part == "worker":
                    there.wait_until_busy(fault.target)
                there.send(fault.target, signal.SIGSTOP)
                time.sleep(fault.for_s)
                there.send(fault.target, signal.SIGCONT)
            case (("drain" | "hurry"), _):
                there.send(fault.target, signal.SIGTERM)
                if first == "hurry":
                    time.sleep(min(fault.for_s, 1.0))
                    there.send(fault.target, signal.SIGTERM)
            case "disk", _:
                there.disk.fill()
                time.sleep(fault.for_s)
                there.disk.free()
            case "clock", _:
                there.clock_file.write_text(f"{fault.amount:.0f}", "ascii")
                time.sleep(fault.for_s)
                there.clock_file.write_text("0", "ascii")
            case (("redis" | "s3"), [mood]):
                name = f"{first} {fault.target}"
                there.proxies.set(name, mood, seconds=0.25)  # type: ignore[arg-type]
                time.sleep(fault.for_s)
                there.proxies.set(name, "pass")
