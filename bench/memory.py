"""Whether a worker grows: its resident memory after many jobs against that after the first hundred.

python -m bench.memory [--jobs 1000] [--first 100] [--steps 4]
"""

from __future__ import annotations

import argparse

import psutil

from bench.stand import running_stand


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4, help="few, so that the time goes into jobs and not into steps")
    options = parser.parse_args()
    with running_stand(8) as stand:
        worker = psutil.Process(stand.worker.pid)
        stand.run(options.first, num_inference_steps=options.steps)
        after_first = worker.memory_info().rss
        for _ in range((options.jobs - options.first) // 100):
            stand.run(100, num_inference_steps=options.steps)
            print(f"{worker.memory_info().rss / 2**20:.0f} MiB", end=" ", flush=True)
        after_all = worker.memory_info().rss
    print(f"\n| after {options.first} jobs | after {options.jobs} | ratio |\n| --- | --- | --- |")
    print(f"| {after_first / 2**20:.0f} MiB | {after_all / 2**20:.0f} MiB | {after_all / after_first:.3f} |")


if __name__ == "__main__":
    main()
