"""`python -m tests.chaos`: a run of any length, its table, and exit code 1 with histories if a count is wrong."""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
from pathlib import Path

from tests.chaos.plan import LEASE_S
from tests.chaos.recovery import p95_s, recoveries
from tests.chaos.report import histories, table
from tests.chaos.run import Outcome, run_chaos
from tests.chaos.verdict import violations


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long jobs are sent and faults happen")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="default: another one each time")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--keep", type=Path, help="a folder for the logs, which are else in a temporary one")
    args = parser.parse_args()
    logging.basicConfig(level="INFO", format="%(message)s")
    logging.getLogger("httpx").setLevel("WARNING")
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        home = args.keep or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        outcome = run_chaos(home, seed=args.seed, seconds=args.seconds, num_jobs=args.jobs)
    broken = violations(outcome.evidence)
    print(table(outcome, broken))
    if broken or outcome.evidence.unfinished:
        print(*(f"{each.rule}: {each.job_id}: {each.what}" for each in broken), sep="\n")
        print(histories(outcome, [each.job_id for each in broken]), outcome.logs, f"seed {args.seed}", sep="\n")
        return 1
    return _judge_times(outcome)


def _judge_times(outcome: Outcome) -> int:
    """Of a worker that dies in calm, 95 of 100 jobs are queued again within a lease and 5 s, and begin anew within that
    time, if the other worker could take them (docs/reliability.md)."""
    calm = [each for each in recoveries(outcome.evidence) if each.is_calm]
    requeued_s = p95_s([each.requeued_ms for each in calm])
    restarted_s = p95_s([each.unhindered_ms for each in calm if each.unhindered_ms is not None])
    if max(requeued_s, restarted_s) <= LEASE_S + 5:
        return 0
    print(histories(outcome, [each.job_id for each in calm]), outcome.logs, sep="\n")
    print(*calm, sep="\n")
    print(f"jobs of a worker that died were queued again after {requeued_s:.1f} s, ran after {restarted_s:.1f} s (p95)")
    print(f"seed {outcome.plan.seed}")
    return 1


raise SystemExit(main())
