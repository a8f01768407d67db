"""What the latents would be without their noise, as the step that has just been made sees it."""

from collections.abc import Sequence
from typing import Any

import torch


def clean_estimate(noise_scheduler: Any, model_output: Any, sample: Any, answer: Sequence[Any]) -> torch.Tensor:
    """The predicted clean latents, shaped as `sample`; the latents after the step where nothing better is known.

    Most noise schedulers answer it beside the next latents (`pred_original_sample`), multistep solvers keep it as their
    last converted model output, and for rectified flow it is `sample - sigma * model_output` (arXiv:2209.03003).
    """
    after: torch.Tensor = answer[0]
    if len(answer) > 1 and isinstance(answer[1], torch.Tensor) and answer[1].shape == after.shape:
        return answer[1]
    kept = vars(noise_scheduler).get("model_outputs")
    if isinstance(kept, list) and isinstance(kept[-1], torch.Tensor) and kept[-1].shape == after.shape:
        return kept[-1]
    index, sigmas = vars(noise_scheduler).get("_step_index"), vars(noise_scheduler).get("sigmas")
    is_flow = "FlowMatchEuler" in type(noise_scheduler).__name__
    if is_flow and index is not None and sigmas is not None and 1 <= index <= len(sigmas):
        clean: torch.Tensor = sample - sigmas[index - 1].to(sample) * model_output
        return clean
    return after
