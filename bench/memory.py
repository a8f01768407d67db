"""Whether a worker grows: its resident memory after many jobs against that after the first of them.

python -m bench.memory [--model bundled] [--jobs 1000] [--first 100] [--steps 4] [--quick]
python -m bench.memory --model costless --jobs 10000 --first 1000
"""

from __future__ import annotations

import psutil

from bench.report import keep, options, say
from bench.stand import costless, running_stand


def main() -> None:
    chosen = options(
        __doc__,
        model=("bundled", "bundled", "or costless: arithmetic instead of a model"),
        jobs=(1000, 40, "in all"),
        first=(100, 20, "after which it is looked at for the first time"),
        steps=(4, 4, "few, so that the time goes into jobs and not into steps"),
    )
    each = max(20, chosen.first)
    with running_stand(8, models=costless() if chosen.model == "costless" else None) as stand:
        worker = psutil.Process(stand.worker.pid)
        looks = []
        for done in range(0, chosen.jobs, each):
            stand.run(min(each, chosen.jobs - done), num_inference_steps=chosen.steps)
            looks.append(worker.memory_info().rss)
            print(f"{looks[-1] / 2**20:.0f} MiB", end=" ", flush=True)
    head = ("model", f"after {chosen.first} jobs", f"after {chosen.jobs}", "ratio")
    ratio = looks[-1] / looks[0]
    say(
        "Memory.", head, [(chosen.model, f"{looks[0] / 2**20:.0f} MiB", f"{looks[-1] / 2**20:.0f} MiB", f"{ratio:.3f}")]
    )
    keep(chosen.figures, {f"memory: {chosen.model}, last / first": ratio})


if __name__ == "__main__":
    main()
