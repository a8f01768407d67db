"""Proof at load time that merged forwards give what separate ones give, on two requests that differ in all they may.

A model that fails it is served all the same, its rows in turn instead of together.
"""

import logging
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import torch

from ..adapter import Capabilities, PreviewRow
from ..batch import Batch
from ..pending import settled
from ..request import DiffusionRequest, Row
from ..result import Stage
from ..warmup import warmup_request

if TYPE_CHECKING:
    from .gang import DiffusersRowCall
    from .stepwise import StepPipeline

log = logging.getLogger(__name__)

PROMPTS = ("a red house", "two blue boats at night under a very small moon")
STEPS = (2, 3)
#: of a side, in pixels: what is proved does not depend on it, and at the models' own sizes the check would take a
#: dozen of their slowest forwards
MAX_SIDE = 128
#: largest difference of two final latents over the largest value, that is rounding and not a mix-up
TOLERANCES = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 1e-1}


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Whether merging is right and happens at all, what was seen, in words, and whether rows may share a loop too."""

    merges: bool
    words: str
    gangs: bool = False


def self_check(adapter: "StepPipeline", capabilities: Capabilities) -> SelfCheck:
    """Run both requests apart, then together, the second one joining late, and compare."""
    requests = _requests(capabilities)
    try:
        apart = [_together(adapter, [request], alone=True)[0][0] for request in requests]
        merged, num_shared = _together(adapter, requests, alone=False)
    except Exception as error:
        return SelfCheck(False, f"the self-check of merged calls failed: {type(error).__name__}: {error}")
    if num_shared == 0:
        return SelfCheck(False, "two requests never called the denoiser in a way that could be merged")
    difference = max(_difference(one, other) for one, other in zip(apart, merged, strict=True))
    if not difference <= TOLERANCES[capabilities.dtype]:
        return SelfCheck(False, f"merged calls differ from separate ones by {difference:.1e} of the latents' range")
    words = f"the calls of different requests merge, within {difference:.0e} of the latents' range"
    return SelfCheck(True, words, _gangs_are_right(adapter, requests[0], apart[0], TOLERANCES[capabilities.dtype]))


def _requests(capabilities: Capabilities) -> Sequence[DiffusionRequest]:
    base = warmup_request(replace(capabilities, default_size=_size(capabilities)))
    return [
        replace(
            base,
            request_id=f"self-check {index}",
            prompt=prompt,
            params=replace(base.params, seed=index, num_inference_steps=steps, guidance_scale=3.0 + index),
        )
        for index, (prompt, steps) in enumerate(zip(PROMPTS, STEPS, strict=True))
    ]


def _size(capabilities: Capabilities) -> tuple[int, int]:
    multiple = capabilities.size_multiple
    height, width = (max(multiple, min(side, MAX_SIDE) // multiple * multiple) for side in capabilities.default_size)
    return height, width


def _together(
    adapter: "StepPipeline", requests: Sequence[DiffusionRequest], *, alone: bool
) -> tuple[list[torch.Tensor | None], int]:
    """The final latents of each, and how many denoise forwards were shared. One joins after each forward."""
    batches = [Batch(adapter.batch_key(request), (Row(request, 0),)) for request in requests]
    calls: list[DiffusersRowCall] = []
    served: dict[int, int] = {}
    num_shared = 0
    try:
        for turn in count(1):
            if batches:
                calls.append(adapter.open(batches.pop(0), _ignore, alone=alone))
            groups: dict[Hashable, list[DiffusersRowCall]] = defaultdict(list)
            for call in calls:
                if call.outcome is None:
                    groups[call.key].append(call)
            if not groups:
                break
            # One group a turn, longest unserved first, as in service: calls that are out of step then fall in.
            group = min(groups.values(), key=lambda group: min(served.get(id(call), 0) for call in group))
            served.update((id(call), turn) for call in group)
            num_shared += len(group) > 1 and group[0].stage == "denoising"
            adapter.advance(group)
    finally:
        for call in calls:
            call.abort()
    for call in calls:
        _raise_fault(call)
    return [call.gang.rendered.latents for call in calls], num_shared


def _gangs_are_right(
    adapter: "StepPipeline", request: DiffusionRequest, alone: torch.Tensor | None, tolerance: float
) -> bool:
    """Two rows in one pipeline call, served together and one by one in turn; the first is `request`."""
    mate = replace(request, request_id="self-check mate", params=replace(request.params, seed=9))
    if adapter.batch_key(other := replace(mate, prompt=PROMPTS[1])) == adapter.batch_key(request):
        mate = other
    try:
        latents = _as_gang(adapter, [request, mate])
    except Exception:
        log.warning("equal requests are not run in one pipeline call", exc_info=True)
        return False
    return latents is not None and _difference(latents[:1], alone) <= tolerance


def _as_gang(adapter: "StepPipeline", requests: Sequence[DiffusionRequest]) -> torch.Tensor | None:
    """The final latents of all."""
    batch = Batch(adapter.batch_key(requests[0]), tuple(Row(request, 0) for request in requests))
    calls = adapter.open_gang(batch, [_ignore] * len(requests))
    try:
        for turn in count():
            missing = [call for call in calls if call.outcome is None and not call.waits]
            if not missing:
                break
            adapter.advance(missing if turn % 2 else missing[:1])
    finally:
        for call in calls:
            call.abort()
    for call in calls:
        _raise_fault(call)
    return calls[0].gang.rendered.latents


def _raise_fault(call: "DiffusersRowCall") -> None:
    outcome = None if call.outcome is None else settled(call.outcome)
    if isinstance(outcome, Exception):
        raise outcome


def _difference(one: torch.Tensor | None, other: torch.Tensor | None) -> float:
    if one is None or other is None or one.shape != other.shape:
        return float("inf")
    scale = one.float().abs().max().item()
    return (one.float() - other.float()).abs().max().item() / max(scale, 1e-12)


def _ignore(stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
    """Nobody watches a self-check."""
