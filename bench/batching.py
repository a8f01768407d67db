"""What batching brings: the same queued jobs at full batch size and one by one, beside the bare pipeline's own gain.

python -m bench.batching [--jobs 64] [--rounds 3] [--rows 8] [--mode auto]
"""

from __future__ import annotations

import argparse

from bench.stand import BarePipeline, running_stand, spread, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--mode", default="auto", choices=["auto", "request", "step"])
    options = parser.parse_args()
    bare = BarePipeline()
    ours_gains, bare_gains, shares = [], [], []
    with running_stand(options.rows, options.mode) as batched, running_stand(1, options.mode) as single:
        for stand, rows in ((batched, options.rows), (single, 1)):
            stand.run(2 * options.rows)
            bare.run(2 * options.rows, rows)
        for number in range(options.rounds):
            one_s, many_s = timed(single.run, options.jobs), timed(batched.run, options.jobs)
            bare_one_s, bare_many_s = timed(bare.run, options.jobs, 1), timed(bare.run, options.jobs, options.rows)
            ours_gains.append(one_s / many_s)
            bare_gains.append(bare_one_s / bare_many_s)
            shares.append(ours_gains[-1] / bare_gains[-1])
            seconds = " ".join(f"{value:.1f}" for value in (one_s, many_s, bare_one_s, bare_many_s))
            print(f"round {number + 1}: ours {ours_gains[-1]:.2f}, bare {bare_gains[-1]:.2f} ({seconds} s)", flush=True)
    print("\n| jobs | rows | ours: one by one / batched | bare: one by one / batched | ours / bare |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| {options.jobs} | {options.rows} | {spread(ours_gains)} | {spread(bare_gains)} | {spread(shares)} |")


if __name__ == "__main__":
    main()
