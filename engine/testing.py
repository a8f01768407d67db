"""Stand-ins that ship with the engine: a clock that moves on demand and a model made of arithmetic, without torch."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from .adapter import Capabilities, Output, RowCall, RowOutcome, StepHook
from .batch import Batch
from .batch_key import BatchKey, Task
from .checkpoint import RowState
from .config import Mode
from .errors import DeviceLost, InvalidRequest, ModelError, OutOfMemory
from .request import DiffusionRequest, Row
from .result import Media, Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PROMPT_WORDS = 75
SIZE_MULTIPLE = 8
HANG_S = 600.0


class FakeClock:
    """Seconds that pass only by `advance`, or by `sleep`, which nobody waits for."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    sleep = advance


class StepGate:
    """A FakeAdapter's `sleep` that holds the device thread in front of each step until `let` through."""

    def __init__(self, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._arrived = threading.Semaphore(0)
        self._permits = threading.Semaphore(0)
        self._is_open = threading.Event()

    def __call__(self, seconds: float) -> None:
        self._arrived.release()
        assert self._is_open.is_set() or self._permits.acquire(timeout=self._timeout_s), "nobody let the step through"

    def wait(self) -> None:
        """Until the device thread stands at the gate (once more)."""
        assert self._arrived.acquire(timeout=self._timeout_s), "no step came"

    def let(self, num_steps: int = 1) -> None:
        """Allow the next steps."""
        self._permits.release(num_steps)

    def open(self) -> None:
        """Allow all steps from now on."""
        self._is_open.set()
        self.let()


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSpec:
    """How a fake model behaves. A `…_prompt` is a word: rows whose prompt contains it are hit; None hits none.

    `nan_prompt`: the row is not finite. `fail_prompt`: the call raises at step `fail_step` (1-based). `hang_prompt`:
    the device sleeps at that step for `HANG_S`. `kill_prompt`:
    the process sends itself SIGKILL at that step. `lost_prompt`: the call raises and the device is gone.
    `oom_above`: more rows than that do not fit. `fail_load`: loading raises. `step_log`: a file that gets a line for
    each step of each row, from any number of processes: `monotonic_ns pid request_id row step`. `memory_mb`: what it
    says that it takes (MiB).
    """

    step_ms: float = 0.0
    load_ms: float = 0.0
    oom_above: int = 1_000_000
    fail_step: int = 1
    nan_prompt: str | None = None
    fail_prompt: str | None = None
    kill_prompt: str | None = None
    hang_prompt: str | None = None
    lost_prompt: str | None = None
    fail_load: bool = False
    step_log: str | None = None
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One call of the fake's `run`: its rows as (request id, index) and the steps it got to."""

    rows: tuple[tuple[str, int], ...]
    steps: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FakeForward:
    """One call of the fake's `advance`: what for, and the rows (request id, index) that shared it."""

    stage: Stage
    rows: tuple[tuple[str, int], ...]


class FakeRowCall:
    """A RowCall: the same arithmetic as in `run`, in pieces."""

    def __init__(
        self,
        row: Row,
        num_steps: int,
        on_step: StepHook,
        decode: Callable[[Row, NDArray[np.float64]], RowOutcome],
        *,
        alone: bool,
        resume: RowState | None = None,
    ) -> None:
        self.row = row
        self.step = 0
        self._resume = resume
        self.stage: Stage = "encoding"
        self.outcome: RowOutcome | None = None
        self.aborted = False
        self.waits = False
        self._num_steps = num_steps
        self._on_step = on_step
        self._decode = decode
        self._alone = alone
        on_step("encoding", 0, num_steps)

    @property
    def key(self) -> Hashable:
        params = self.row.request.params
        return self if self._alone else (self.stage, params.height, params.width)

    def go_on(self) -> None:
        if self.stage == "encoding":
            self._latents, self._condition = _noise(self.row), _condition(self.row)
            if self._resume is not None:
                self.step, self._latents = self._resume.step, self._resume.state["latents"]
            self._tell("denoising" if self.step < self._num_steps else "decoding")
        elif self.stage == "denoising":
            self._latents = 0.75 * self._latents + 0.25 * self._condition
            self.step += 1
            self._tell("denoising")
            if self.step == self._num_steps:
                self._tell("decoding")
        else:
            self.outcome = self._decode(self.row, self._latents)

    def state(self) -> RowState | None:
        return RowState(self.row.index, self.step, {"latents": self._latents}) if self.step else None

    def fail(self, error: Exception) -> None:
        self.outcome = error

    def abort(self) -> None:
        self.aborted = self.outcome is None

    def _tell(self, stage: Stage) -> None:
        self.stage = stage
        self._on_step(stage, self.step, self._num_steps, partial(_preview, [self._latents]))


class FakeAdapter:
    """A PipelineAdapter whose every row is a function of its own request and seed, to the last bit, in any company.

    `calls` records what ran; `sleep` gets the seconds of each step; `extra_methods` join its methods.
    """

    def __init__(
        self,
        spec: FakeSpec | None = None,
        sleep: Callable[[float], None] = time.sleep,
        mode: Literal["request", "step"] = "request",
    ) -> None:
        self.spec = spec or FakeSpec()
        self.mode = mode
        self.calls: list[FakeCall] = []
        self.forwards: list[FakeForward] = []
        self.closed = False
        self.extra_methods: dict[str, Callable[..., object]] = {}
        self._sleep = sleep
        self._lost = False
        self._profiles: list[str] = []

    @classmethod
    def from_spec(cls, text: str, mode: Mode = "auto") -> FakeAdapter:
        """From `name=value,…` with the fields of FakeSpec, as in `fake:step_ms=5,kill_prompt=poison`.

        It serves both modes; `auto` is request mode.

        Raises ValueError naming a field that does not exist or a value that is none.
        """
        spec = FakeSpec()
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in {item.name for item in fields(FakeSpec)}:
                raise ValueError(f"model: a fake has no {name!r}")
            spec = replace(spec, **{name: _parse(name, value)})
        return cls(spec, mode="step" if mode == "step" else "request")

    def load(self) -> Capabilities:
        time.sleep(self.spec.load_ms / 1000)
        if self.spec.fail_load:
            raise RuntimeError("this fake does not load")
        tasks: frozenset[Task] = frozenset({"text2image", "image2image", "inpaint"})
        return Capabilities(
            model_class="FakePipeline",
            device="cpu",
            dtype="float32",
            tasks=tasks,
            default_size=(16, 16),
            mode=self.mode,
            mode_reason="a fake does as it is told",
            memory_bytes=self.spec.memory_mb * 2**20,
        )

    def batch_key(self, request: DiffusionRequest) -> BatchKey:
        params = request.params
        if params.height % SIZE_MULTIPLE or params.width % SIZE_MULTIPLE:
            raise InvalidRequest(f"height and width must be multiples of {SIZE_MULTIPLE}")
        strength = None if request.image is None else (0.8 if params.strength is None else params.strength)
        if strength is not None and int(params.num_inference_steps * strength) < 1:
            raise InvalidRequest(f"strength {strength} of {params.num_inference_steps} steps leaves no step to run")
        return BatchKey(
            task="text2image" if request.image is None else ("inpaint" if request.mask_image else "image2image"),
            height=params.height,
            width=params.width,
            num_inference_steps=params.num_inference_steps,
            guidance_scale=params.guidance_scale,
            has_negative=params.negative_prompt is not None,
            strength=strength,
            noise_scheduler=params.noise_scheduler,
            image_size=None if request.image is None else request.image.size,
            loras=params.loras,
        )

    def prepare(self, request: DiffusionRequest) -> Future[object] | None:
        """Nothing is ever missing."""
        return None

    def open(self, batch: Batch, on_step: StepHook, *, alone: bool, resume: RowState | None = None) -> FakeRowCall:
        """Held at its encoding, at each of its steps and at its decoding, each of which may be shared."""
        (row,) = batch.rows
        return FakeRowCall(row, _num_steps(batch), on_step, self._decode, alone=alone, resume=resume)

    def advance(self, calls: Sequence[RowCall]) -> None:
        self._advance([call for call in calls if isinstance(call, FakeRowCall)])

    def _advance(self, calls: Sequence[FakeRowCall]) -> None:
        stage = calls[0].stage
        assert len({call.key for call in calls}) == 1
        self.forwards.append(FakeForward(stage, tuple((call.row.request.request_id, call.row.index) for call in calls)))
        if stage == "denoising":
            if len(calls) > self.spec.oom_above:
                raise OutOfMemory(f"{len(calls)} rows do not fit")
            self._sleep(self.spec.step_ms / 1000)
            self._note_steps([(call.row, call.step + 1) for call in calls])
            for call in calls:
                self._misbehave((call.row,), call.step + 1)
        for call in calls:
            call.go_on()

    def run(self, batch: Batch, on_step: StepHook) -> Sequence[RowOutcome]:
        num_steps = _num_steps(batch)
        call = FakeCall(tuple((row.request.request_id, row.index) for row in batch.rows))
        self.calls.append(call)
        if len(batch.rows) > self.spec.oom_above:
            raise OutOfMemory(f"{len(batch.rows)} rows do not fit")
        on_step("encoding", 0, num_steps)
        latents = [_noise(row) for row in batch.rows]
        conditions = [_condition(row) for row in batch.rows]
        on_step("denoising", 0, num_steps)
        for step in range(1, num_steps + 1):
            self._sleep(self.spec.step_ms / 1000)
            self._note_steps([(row, step) for row in batch.rows])
            self._misbehave(batch.rows, step)
            latents = [0.75 * x + 0.25 * c for x, c in zip(latents, conditions, strict=True)]
            call.steps.append(step)
            on_step("denoising", step, num_steps, partial(_preview, latents))
        on_step("decoding", num_steps, num_steps)
        return [self._decode(row, x) for row, x in zip(batch.rows, latents, strict=True)]

    def methods(self) -> Mapping[str, Callable[..., object]]:
        return {
            "echo": lambda *args, **kwargs: (args, kwargs),
            "sleep": self._sleep,
            "profile_start": self._profiles.append,
            "profile_stop": self._profiles.pop,
            "thread": lambda: threading.current_thread().name,
            **self.extra_methods,
        }

    def probe(self) -> None:
        if self._lost:
            raise DeviceLost("the fake device is gone")

    def close(self) -> None:
        self.closed = True

    def _note_steps(self, steps: Sequence[tuple[Row, int]]) -> None:
        """One write, so that the lines of several processes do not mix."""
        if self.spec.step_log is None:
            return
        now_ns, pid = time.monotonic_ns(), os.getpid()
        lines = [f"{now_ns} {pid} {row.request.request_id} {row.index} {step}\n" for row, step in steps]
        with open(self.spec.step_log, "ab", buffering=0) as log:
            log.write("".join(lines).encode("ascii"))

    def _misbehave(self, rows: Sequence[Row], step: int) -> None:
        if step != self.spec.fail_step:
            return
        if _hit(rows, self.spec.hang_prompt):
            time.sleep(HANG_S)
        if _hit(rows, self.spec.kill_prompt):
            os.kill(os.getpid(), signal.SIGKILL)
        if _hit(rows, self.spec.lost_prompt):
            self._lost = True
            raise RuntimeError("an illegal access was met")
        if _hit(rows, self.spec.fail_prompt):
            raise RuntimeError("the fake model failed")

    def _decode(self, row: Row, latents: NDArray[np.float64]) -> RowOutcome:
        if self.spec.nan_prompt is not None and self.spec.nan_prompt in row.request.prompt:
            return ModelError(f"output {row.index} is not finite")
        num_words = len(row.request.prompt.split())
        truncated = (f"prompt truncated at token {MAX_PROMPT_WORDS}",) if num_words > MAX_PROMPT_WORDS else ()
        return Output(Media(pixels=_pixels(latents), seed=row.seed), truncated)


def _parse(name: str, value: str) -> Any:
    kind = FakeSpec.__dataclass_fields__[name].type
    if kind == "bool":
        return value in ("", "1", "true")
    try:
        return {"float": float, "int": int}.get(str(kind), str)(value)
    except ValueError:
        raise ValueError(f"model: {name} of a fake cannot be {value!r}") from None


def _hit(rows: Sequence[Row], word: str | None) -> bool:
    return word is not None and any(word in row.request.prompt for row in rows)


def _num_steps(batch: Batch) -> int:
    num_steps = batch.key.num_inference_steps
    return num_steps if batch.key.strength is None else int(num_steps * batch.key.strength)


def _noise(row: Row) -> NDArray[np.float64]:
    params = row.request.params
    return np.random.default_rng(row.seed).random((params.height, params.width, 3))


def _condition(row: Row) -> NDArray[np.float64]:
    """A colour, shape `[3]`, of everything that should show in the picture."""
    params, image = row.request.params, row.request.image
    pixels = b"" if image is None else image.tobytes()
    text = repr((row.request.prompt, params.negative_prompt, params.guidance_scale, params.noise_scheduler))
    digest = hashlib.sha256(text.encode() + pixels).digest()
    return np.frombuffer(digest[:3], np.uint8).astype(np.float64) / 255


def _preview(latents: list[NDArray[np.float64]], index: int) -> Image.Image:
    return Image.fromarray(_pixels(latents[index]))


def _pixels(latents: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray((latents * 255).round(), np.uint8)
