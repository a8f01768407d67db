"""Noise schedulers by name: the default of a pipeline and those that are compatible with it."""

import copy
from typing import Any

from ..errors import InvalidRequest

SHORT_NAMES = {
    "ddim": "DDIMScheduler",
    "ddpm": "DDPMScheduler",
    "dpmpp_2m": "DPMSolverMultistepScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler_a": "EulerAncestralDiscreteScheduler",
    "flow_euler": "FlowMatchEulerDiscreteScheduler",
    "heun": "HeunDiscreteScheduler",
    "lcm": "LCMScheduler",
    "pndm": "PNDMScheduler",
    "unipc": "UniPCMultistepScheduler",
}

#: draws its noise from one Brownian tree for the whole batch, so a row would depend on its neighbours
ROW_DEPENDENT = frozenset({"DPMSolverSDEScheduler", "CosineDPMSolverMultistepScheduler"})


class NoiseSchedulers:
    """What one pipeline can sample with. Hands out fresh copies: a noise scheduler keeps state across its steps."""

    def __init__(self, default: Any) -> None:
        self._default = default
        self._classes = {found.__name__: found for found in default.compatibles if found.__name__ not in ROW_DEPENDENT}
        self._made: dict[str, Any] = {type(default).__name__: default}

    def resolve(self, name: str | None) -> str:
        """The class name for a class name, a short name or None. Raises InvalidRequest naming those that there are."""
        resolved = type(self._default).__name__ if name is None else SHORT_NAMES.get(name, name)
        if resolved not in self._classes and resolved not in self._made:
            raise InvalidRequest(f"noise_scheduler {name!r} is unknown here; there are: {', '.join(self.names())}")
        return resolved

    def names(self) -> list[str]:
        """Every accepted name, short ones first."""
        short = [name for name, class_name in SHORT_NAMES.items() if class_name in self._classes]
        return short + sorted(self._classes)

    def fresh(self, class_name: str) -> Any:
        """A new scheduler of a resolved name, with the pipeline's own configuration of betas and prediction type."""
        if class_name not in self._made:
            try:
                self._made[class_name] = self._classes[class_name].from_config(self._default.config)
            except ImportError as error:
                raise InvalidRequest(f"noise_scheduler {class_name} needs a package: {error}") from error
        return copy.deepcopy(self._made[class_name])
