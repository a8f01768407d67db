"""How far rows that share calls (request mode) or forwards (step mode) are from the same rows alone, for every family.

python -m bench.families [NAME …]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from engine import DiffusionRequest, EngineConfig, testing_pipelines
from engine.adapter import Output, RowCall
from engine.adapters import whole
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.request import Row
from tests.contract.families import FAMILIES, PROMPTS, Family


class Watched:
    """A loaded family and its rows as they were before rounding, by request."""

    def __init__(self, name: str, folder: str) -> None:
        self.family: Family = FAMILIES[name]
        getattr(testing_pipelines, name)().save_pretrained(folder)
        self.adapter = StepPipeline(EngineConfig(model=folder, num_threads=1, mode="step"))
        self.capabilities = self.adapter.load()
        self.raws: dict[str, Any] = {}
        self._media = whole.media
        whole.media = self._watch

    def close(self) -> None:
        whole.media = self._media
        self.adapter.close()

    def alone(self, wanted: Sequence[DiffusionRequest]) -> dict[str, Any]:
        for one in wanted:
            self._run(one)
        return dict(self.raws)

    def in_one_call(self, wanted: Sequence[DiffusionRequest]) -> dict[str, Any]:
        groups: dict[Any, list[DiffusionRequest]] = {}
        for one in wanted:
            groups.setdefault(self.adapter.batch_key(one), []).append(one)
        for group in groups.values():
            self._run(*group)
        return dict(self.raws)

    def joined(self, wanted: Sequence[DiffusionRequest]) -> dict[str, Any]:
        calls: list[RowCall] = []
        for one in wanted:
            batch = Batch(self.adapter.batch_key(one), (Row(one, 0),))
            calls.append(self.adapter.open(batch, lambda *_: None, alone=False))
        served: dict[int, int] = {}
        turn = 0
        while waiting := [call for call in calls if call.outcome is None]:
            groups: dict[Any, list[RowCall]] = {}
            for call in waiting:
                groups.setdefault(call.key, []).append(call)
            group = min(groups.values(), key=lambda group: min(served.get(id(call), 0) for call in group))
            turn += 1
            served.update((id(call), turn) for call in group)
            self.adapter.advance(group)
        return dict(self.raws)

    def difference(self, one: dict[str, Any], other: dict[str, Any]) -> float:
        def of(name: str) -> float:
            scale = float(np.abs(one[name]).max()) if "duration_s" in self.family.params else 1.0
            return float(np.abs(one[name] - other[name]).max()) / scale

        return max(of(name) for name in one)

    def _run(self, *wanted: DiffusionRequest) -> None:
        rows = tuple(Row(one, 0) for one in wanted)
        outcomes = self.adapter.run(Batch(self.adapter.batch_key(wanted[0]), rows), lambda *_: None)
        assert all(isinstance(outcome, Output) for outcome in outcomes), outcomes

    def _watch(self, raw: Any, row: Row, pipeline: Any) -> Any:
        self.raws[row.request.request_id] = np.array(raw, dtype=np.float64)
        return self._media(raw, row, pipeline)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FAMILIES), metavar="NAME")
    torch.set_num_threads(1)
    print(
        "| family | pipeline | mode by itself | one call of 3 | joined at each step |\n| --- | --- | --- | --- | --- |"
    )
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
            model = Watched(name, folder)
            family = model.family
            equal = [family.request(f"r{k}", PROMPTS[k], seed=k + 1, num_inference_steps=3) for k in (0, 1, 3)]
            mixed = [
                family.request(f"r{k}", PROMPTS[k], seed=k + 1, num_inference_steps=2 + k, guidance_scale=3.0 + k)
                for k in (0, 1, 3)
            ]
            in_one = model.difference(model.alone(equal), model.in_one_call(equal))
            joined = model.difference(model.alone(mixed), model.joined(mixed))
            row = (
                f"`{name}`",
                model.capabilities.model_class,
                model.capabilities.mode,
                f"{in_one:.1e}",
                f"{joined:.1e}",
            )
            print("| " + " | ".join(row) + " |", flush=True)
            model.close()


if __name__ == "__main__":
    main()
