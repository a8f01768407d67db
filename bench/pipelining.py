"""Table 7: how long the device waits for encoding and uploads, with a store that takes 200 ms for each put.

python -m bench.pipelining [--jobs 96] [--step-ms 100] [--put-ms 200] [--quick]

The model sleeps for each step, about as long as eight pictures of SDXL take, and notes when a step ended. What lies
between two steps beyond the step itself is the device's idle time: our own Python included, uploads included where they
hold it up. *Bare* is the same model called in a loop by a process that does nothing else: what it notes takes time too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from bench.far_store import delayed
from bench.report import keep, options, say
from bench.stand import costless, servers
from engine import DiffusionRequest, SamplingParams
from engine.batch import Batch
from engine.request import Row
from engine.testing import FakeAdapter, FakeSpec

STEPS = 20
REQUEST = {"prompt": "a red boat", "num_inference_steps": STEPS, "guidance_scale": 4.0}


def step_ends(lines: Sequence[str]) -> list[float]:
    """Seconds at which forwards ended, from a fake's step log; rows of one forward carry one time."""
    return sorted({int(line.split(" ", 1)[0]) / 1e9 for line in lines})


def idle_share(ends: Sequence[float], step_s: float) -> float:
    """Of the time from the first end to the last: what no step filled."""
    if len(ends) < 2:
        return 0.0
    return max(0.0, 1 - (len(ends) - 1) * step_s / (ends[-1] - ends[0]))


def longest_gap_s(ends: Sequence[float], step_s: float) -> float:
    return max((later - earlier - step_s for earlier, later in pairwise(ends)), default=0.0)


def bare(step_ms: float, batches: int = 3) -> float:
    """Idle share of the model alone, in batches of 8."""
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        log = Path(folder) / "steps.log"
        adapter = FakeAdapter(FakeSpec(step_ms=step_ms, step_log=str(log)))
        params = SamplingParams(height=16, width=16, num_inference_steps=STEPS, guidance_scale=4.0, seed=0)
        rows = tuple(Row(DiffusionRequest(request_id=str(k), prompt="a red boat", params=params), 0) for k in range(8))
        for _ in range(batches):
            adapter.run(Batch(adapter.batch_key(rows[0].request), rows), lambda *_: None)
        return idle_share(step_ends(log.read_text("ascii").splitlines()), step_ms / 1000)


def run(jobs: int, step_ms: float, put_s: float, mode: str) -> tuple[float, float]:
    """Idle share and longest gap."""
    with servers("") as found, delayed(found.s3.port, put_s) as store:
        log = found.home / "steps.log"
        models = costless(step_ms, mode=mode).replace("fake:", f"fake:step_log={log},")
        (found.home / "models.toml").write_text(models, "utf-8")
        client = found.client()
        changes = {"SAFELIGHT_S3_ENDPOINT_URL": f"http://127.0.0.1:{store.port}"} if put_s else {}
        found.start_worker("worker", client, changes)
        ids = [job.id for job in client.submit_many([REQUEST] * jobs)]
        assert all(client.wait(job_id, 600).status == "succeeded" for job_id in ids)
        ends = step_ends(Path(log).read_text("ascii").splitlines())
        middle = ends[len(ends) // 8 : -len(ends) // 8]
        return idle_share(middle, step_ms / 1000), longest_gap_s(middle, step_ms / 1000)


def main() -> None:
    chosen = options(
        __doc__,
        jobs=(96, 48, "of 20 steps, 8 share a batch"),
        step_ms=(100.0, 50.0, "that a step takes"),
        put_ms=(200.0, 200.0, "that a put takes"),
    )
    alone = bare(chosen.step_ms)
    rows, figures = [("bare", "", f"{100 * alone:.1f} %", "", "")], {}
    for mode in ("request", "step"):
        for put_ms in (0.0, chosen.put_ms):
            idle, gap_s = run(chosen.jobs, chosen.step_ms, put_ms / 1000, mode)
            more = f"{100 * (idle - alone):.1f} %"
            rows.append((mode, f"{put_ms:.0f} ms", f"{100 * idle:.1f} %", more, f"{1000 * gap_s:.0f} ms"))
            figures[f"pipelining: busy share, {mode} mode, puts of {put_ms:.0f} ms"] = 1 - idle
    head = ("mode", "a put takes", "idle", "above bare", "longest gap")
    say(f"{chosen.jobs} jobs of 20 steps of {chosen.step_ms:.0f} ms; target: at most 2 % idle.", head, rows)
    keep(chosen.figures, figures)


if __name__ == "__main__":
    main()
