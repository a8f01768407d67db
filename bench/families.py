"""How far rows that share calls (request mode) or forwards (step mode) are from the same rows alone, for every family.

python -m bench.families [NAME …]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from engine import DiffusionRequest, EngineConfig, testing_pipelines
from engine.adapter import Output
from engine.adapters import whole
from engine.adapters.stepwise import StepPipeline
from engine.batch import Batch
from engine.config import Dtype
from engine.request import Row
from tests.contract.families import FAMILIES, PROMPTS, Family
from tests.contract.serving import Floats, difference, run_alone, serve

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
HEAD = """\
| family | pipeline | mode by itself | fp32, one call | fp32, joined | bf16, one call | bf16, joined |
| --- | --- | --- | --- | --- | --- | --- |"""


class Watched:
    """A loaded family and its rows as they were before rounding, by request."""

    def __init__(self, name: str, folder: str, dtype: Dtype) -> None:
        self.family: Family = FAMILIES[name]
        self.adapter = StepPipeline(EngineConfig(model=folder, num_threads=1, mode="step", dtype=dtype))
        self.capabilities = self.adapter.load()
        self.raws: dict[str, Floats] = {}
        self._media = whole.media
        whole.media = self._watch

    def close(self) -> None:
        whole.media = self._media
        self.adapter.close()

    def in_one_call(self) -> float:
        family = self.family
        return self._apart(
            [family.request(f"r{k}", PROMPTS[k], seed=k + 1, num_inference_steps=3) for k in (0, 1, 3)], self._together
        )

    def joined(self) -> float:
        family = self.family
        mixed = [
            family.request(f"r{k}", PROMPTS[k], seed=k + 1, num_inference_steps=2 + k, guidance_scale=3.0 + k)
            for k in (0, 1, 3)
        ]
        return self._apart(mixed, lambda wanted: serve(self.adapter, wanted))

    def _apart(
        self, wanted: Sequence[DiffusionRequest], together: Callable[[Sequence[DiffusionRequest]], object]
    ) -> float:
        for one in wanted:
            run_alone(self.adapter, one)
        alone = dict(self.raws)
        together(wanted)
        return max(difference(self.family, raw, self.raws[name]) for name, raw in alone.items())

    def _together(self, wanted: Sequence[DiffusionRequest]) -> None:
        groups: dict[Any, list[DiffusionRequest]] = {}
        for one in wanted:
            groups.setdefault(self.adapter.batch_key(one), []).append(one)
        for key, group in groups.items():
            outcomes = self.adapter.run(Batch(key, tuple(Row(one, 0) for one in group)), lambda *_: None)
            assert all(isinstance(outcome, Output) for outcome in outcomes), outcomes

    def _watch(self, raw: Any, row: Row, pipeline: Any) -> Any:
        self.raws[row.request.request_id] = np.array(raw, dtype=np.float64)
        return self._media(raw, row, pipeline)


def measured(name: str) -> list[str]:
    """One row of the table."""
    cells = [f"`{name}`"]
    with tempfile.TemporaryDirectory(prefix="safelight-bench-") as folder:
        getattr(testing_pipelines, name)().save_pretrained(folder)
        for dtype in DTYPES:
            model = Watched(name, folder, dtype)
            if len(cells) == 1:
                cells += [model.capabilities.model_class, model.capabilities.mode]
            cells += [f"{model.in_one_call():.1e}", f"{model.joined():.1e}"]
            model.close()
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FAMILIES), metavar="NAME")
    torch.set_num_threads(1)
    print(HEAD)
    for name in parser.parse_args().names:
        print("| " + " | ".join(measured(name)) + " |", flush=True)


if __name__ == "__main__":
    main()
