"""How much longer the whole way takes (Redis, Celery, engine, PNG, S3) than the same pictures on the bare pipeline.

python -m bench.overhead [--jobs 200] [--rounds 3] [--rows 8] [--mode auto]
"""

from __future__ import annotations

import argparse

from bench.stand import BarePipeline, running_stand, spread, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8, help="batch size of both sides")
    parser.add_argument("--mode", default="auto", choices=["auto", "request", "step"])
    options = parser.parse_args()
    bare = BarePipeline()
    ratios = []
    with running_stand(options.rows, options.mode) as stand:
        stand.run(2 * options.rows)
        bare.run(2 * options.rows, options.rows)
        for number in range(options.rounds):
            bare_s = timed(bare.run, options.jobs, options.rows)
            ours_s = timed(stand.run, options.jobs)
            ratios.append(ours_s / bare_s)
            print(f"round {number + 1}: bare {bare_s:.2f} s, ours {ours_s:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(
        f"\n| jobs | rows | ours / bare |\n| --- | --- | --- |\n| {options.jobs} | {options.rows} | {spread(ratios)} |"
    )


if __name__ == "__main__":
    main()
