"""What a producer asks of one request's sampling. Input only: nothing in the engine ever writes to it."""

import math
from dataclasses import dataclass

MAX_SEED = 2**63 - 1
MAX_OUTPUTS = 16

#: (name, scale) of each LoRA of a request, in the order in which they are added up
Loras = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to sample. Raises ValueError naming the field when a value can never be right, whatever the model.

    `height` and `width` are pixels, `guidance_scale` is as in diffusers. Output *k* of `num_outputs` uses
    `seed + k`. `exact` asks for bit equality with a plain diffusers call: each row runs in a call of its own.
    `preview_every` is in steps, 0 for none. `loras` are names of `EngineConfig.loras` with the scale of each.
    """

    height: int
    width: int
    num_inference_steps: int = 20
    guidance_scale: float = 4.0
    seed: int
    num_outputs: int = 1
    negative_prompt: str | None = None
    strength: float | None = None
    noise_scheduler: str | None = None
    num_frames: int | None = None
    fps: float | None = None
    duration_s: float | None = None
    exact: bool = False
    preview_every: int = 0
    loras: Loras = ()

    def __post_init__(self) -> None:
        _require_int("height", self.height, 1)
        _require_int("width", self.width, 1)
        _require_int("num_inference_steps", self.num_inference_steps, 1)
        _require_int("num_outputs", self.num_outputs, 1, MAX_OUTPUTS)
        _require_int("seed", self.seed, 0, MAX_SEED - self.num_outputs + 1)
        _require_int("preview_every", self.preview_every, 0)
        _require_finite("guidance_scale", self.guidance_scale, 0.0)
        if self.num_frames is not None:
            _require_int("num_frames", self.num_frames, 1)
        for name, value in (("fps", self.fps), ("duration_s", self.duration_s)):
            if value is not None:
                _require_finite(name, value, 0.0, above=True)
        if self.strength is not None:
            _require_finite("strength", self.strength, 0.0)
            if self.strength > 1.0:
                raise ValueError(f"strength must be between 0 and 1, not {self.strength}")
        if self.negative_prompt is not None:
            require_text("negative_prompt", self.negative_prompt)
        for name, scale in self.loras:
            require_text("loras", name)
            _require_finite("loras", scale)
        if len({name for name, _ in self.loras}) < len(self.loras):
            raise ValueError("loras must name each one once")


def require_text(name: str, value: str) -> None:
    """Raises ValueError unless `value` is text that UTF-8 can carry (a lone surrogate cannot be tokenized)."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, not {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds a character that is no valid Unicode at position {error.start}") from None


def _require_int(name: str, value: int, low: int, high: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, not {value!r}")
    if value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {bound}, not {value}")


def _require_finite(name: str, value: float, low: float = -math.inf, *, above: bool = False) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    if value < low or (above and value == low):
        raise ValueError(f"{name} must be {'above' if above else 'at least'} {low:g}, not {value}")
