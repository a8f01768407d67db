"""What a node serves: one `ModelSpec` for each table of `models.toml`. Knows names and limits, loads no weights."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tasks.errors import ConfigError
from tasks.request import AUDIO_FORMATS, IMAGE_FORMATS, VIDEO_FORMATS, OutputFormat

Modality = Literal["image", "video", "audio"]
#: What a modality can be delivered as, the default first.
FORMATS: dict[Modality, tuple[str, ...]] = {"image": IMAGE_FORMATS, "video": VIDEO_FORMATS, "audio": AUDIO_FORMATS}


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ModelDefaults(_Spec):
    #: Pixels.
    height: Annotated[int, Field(ge=8)] = 512
    #: Pixels.
    width: Annotated[int, Field(ge=8)] = 512
    #: Denoising steps.
    num_inference_steps: Annotated[int, Field(ge=1)] = 30
    #: How closely the result follows the prompt.
    guidance_scale: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 5.0
    #: How far to move from an input picture.
    strength: Annotated[float, Field(gt=0, le=1)] = 0.8
    #: What should not appear.
    negative_prompt: str | None = None
    #: Video: frames.
    num_frames: Annotated[int, Field(ge=1)] | None = None
    #: Video: frames a second.
    fps: Annotated[float, Field(gt=0, le=240)] | None = None
    #: Audio or video: seconds.
    duration_s: Annotated[float, Field(gt=0)] | None = None
    #: The modality's own default when absent: png, mp4 or wav.
    output_format: OutputFormat | None = None


class ModelLimits(_Spec):
    #: Height and width are multiples of this, in pixels.
    size_multiple: Annotated[int, Field(ge=1)] = 8
    #: The smallest height and width.
    min_size: Annotated[int, Field(ge=1)] = 64
    #: The largest height and width.
    max_size: Annotated[int, Field(ge=1)] = 2048
    #: The most `num_inference_steps`.
    max_steps: Annotated[int, Field(ge=1)] = 150
    #: The most `num_outputs`.
    max_outputs: Annotated[int, Field(ge=1, le=16)] = 16
    #: height x width x num_outputs (x num_frames).
    max_pixels: Annotated[int, Field(ge=1)] = 2**26
    #: The most `num_frames`.
    max_frames: Annotated[int, Field(ge=1)] = 257
    #: The longest `duration_s`.
    max_duration_s: Annotated[float, Field(gt=0)] = 60.0


class ModelSpec(_Spec):
    #: That of the table.
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    #: A hub id, a folder in diffusers' format (an absolute path, or `./…`), or `bundled:tiny`.
    source: str
    #: A commit of the hub's repository: pin it, and every worker has the same weights.
    revision: str | None = None
    #: What it makes.
    modality: Modality = "image"
    #: Of the weights; auto: float32 on a CPU, bfloat16 on CUDA that has it, else float16.
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    #: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
    device: str = "auto"
    #: `process`: each of `devices` has a process of its own, behind one queue in the worker; `inline`: one device.
    executor: Literal["inline", "process"] = "inline"
    #: With `executor = "process"` or `parallel`, in place of `device`: `["cuda:0", "cuda:1"]`. As ranks each takes
    #: `max_batch_rows`.
    devices: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    #: All `devices` serve the same rows together. `context`: each attends for a part of the sequence; `tensor`: each
    #: computes a part of every layer; `shard`: each keeps a part of the weights.
    parallel: Literal["context", "tensor", "shard"] | None = None
    #: `step`: requests join and leave at every denoise step; `request`: whole calls are batched; `auto`: step where it
    #: is proved right.
    mode: Literal["auto", "request", "step"] = "auto"
    #: Pictures that denoise together; guidance doubles them inside the pipeline. Step mode has up to twice as many
    #: under way, if it is above 1.
    max_batch_rows: Annotated[int, Field(ge=1, le=1024)] = 4
    #: How long the first of a batch waits for company.
    admission_wait_ms: Annotated[float, Field(ge=0, le=10_000)] = 20.0
    #: `model`: parts wait in RAM and visit the GPU one by one; `sequential`: layer by layer, very slow.
    offload: Literal["none", "model", "sequential"] = "none"
    #: torch.compile of the denoiser: minutes at the first job of each size, faster afterwards; needs a C compiler.
    compile: bool = False
    #: The VAE works on overlapping tiles of large pictures: less memory, faint seams.
    vae_tiling: bool = False
    #: The VAE takes the rows of a batch one by one: less memory.
    vae_slicing: bool = False
    #: One of diffusers' attention backends, for transformers that can be told one.
    attention_backend: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    #: Step mode: encoded texts that are kept for prompts that come again, MiB of the device's memory; 0 is none.
    prompt_cache_mb: Annotated[int, Field(ge=0, le=65_536)] = 64
    #: Never let go for another model (docs/operations.md#more-models-than-memory).
    keep: bool = False
    #: What it takes of its device, MiB; unset: measured when it loads, before that told by its weights.
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    #: A class of diffusers in place of the one that the folder names.
    pipeline_class: str | None = None
    #: Pickled weights run code when they load; only for a source you trust.
    allow_pickle: bool = False
    #: Accepts `image` (image to image).
    image_input: bool = True
    #: Accepts `mask_image` (inpainting).
    mask_input: bool = True
    #: Names that a request's `noise_scheduler` may take; empty: the pipeline's own only.
    noise_schedulers: tuple[str, ...] = ()
    #: LoRA adapters by the name that a request uses: a safetensors file (a path that begins with `/`, `./` or `~`), a
    #: folder, a hub id, or a hub id with a file of it: `owner/name/file.safetensors`.
    loras: dict[str, str] = Field(default_factory=dict)
    #: Adapters in memory at a time, and so in one request; the one that was unused for longest makes room.
    max_loras: Annotated[int, Field(ge=1, le=256)] = 8
    defaults: ModelDefaults = ModelDefaults()
    limits: ModelLimits = ModelLimits()
    #: (width, height) that the model was trained for, the best first; others within `limits` run and may look worse.
    sizes: tuple[tuple[int, int], ...] = ()

    @property
    def num_ranks(self) -> int:
        """Devices that serve it at the same time in one worker."""
        return 1 if self.parallel else max(1, len(self.devices))

    @model_validator(mode="after")
    def _devices_fit_executor(self) -> ModelSpec:
        if self.devices and self.executor != "process" and self.parallel is None:
            raise ValueError('devices needs executor = "process" or parallel; for one device there is `device`')
        if self.devices and self.device != "auto":
            raise ValueError("device and devices exclude each other")
        return self

    @model_validator(mode="after")
    def _defaults_fit_limits(self) -> ModelSpec:
        for field in ("height", "width"):
            size = getattr(self.defaults, field)
            if size % self.limits.size_multiple or not self.limits.min_size <= size <= self.limits.max_size:
                raise ValueError(f"defaults.{field} = {size} is outside this model's own limits")
        for size in (side for pair in self.sizes for side in pair):
            if size % self.limits.size_multiple or not self.limits.min_size <= size <= self.limits.max_size:
                raise ValueError(f"sizes: {size} is outside this model's own limits")
        if self.defaults.num_inference_steps > self.limits.max_steps:
            raise ValueError("defaults.num_inference_steps is above limits.max_steps")
        if self.defaults.output_format not in (None, *FORMATS[self.modality]):
            raise ValueError(f"defaults.output_format = {self.defaults.output_format} is not for {self.modality}")
        if (self.defaults.num_frames or 1) > self.limits.max_frames:
            raise ValueError("defaults.num_frames is above limits.max_frames")
        if (self.defaults.duration_s or 0) > self.limits.max_duration_s:
            raise ValueError("defaults.duration_s is above limits.max_duration_s")
        if self.defaults.height * self.defaults.width * (self.defaults.num_frames or 1) > self.limits.max_pixels:
            raise ValueError("defaults: one output has more pixels than limits.max_pixels")
        return self


BUNDLED = ModelSpec(
    name="tiny",
    source="bundled:tiny",
    dtype="float32",
    device="cpu",
    max_batch_rows=8,
    mask_input=False,
    noise_schedulers=("ddim", "euler", "dpmpp_2m", "unipc"),
    defaults=ModelDefaults(height=96, width=96, num_inference_steps=20, guidance_scale=4.0),
    limits=ModelLimits(size_multiple=8, min_size=64, max_size=160, max_steps=100, max_pixels=160 * 160 * 16),
    sizes=((96, 96), (128, 96), (96, 128)),
)


class Models:
    """The served models by name, in the file's order; the first is the default."""

    def __init__(self, specs: tuple[ModelSpec, ...]) -> None:
        if not specs:
            raise ConfigError("models: at least one model is needed")
        self._by_name = {spec.name: spec for spec in specs}

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self._by_name.values())

    @property
    def default(self) -> ModelSpec:
        return next(iter(self._by_name.values()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def get(self, name: str) -> ModelSpec | None:
        return self._by_name.get(name)


def load_models(path: Path | None) -> Models:
    """Read a models file; None gives the bundled model. Raises `ConfigError` naming file, table and entry."""
    if path is None:
        return Models((BUNDLED,))
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"SAFELIGHT_MODELS: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"SAFELIGHT_MODELS: {path} is not TOML: {error}") from None
    if not tables:
        raise ConfigError(f"SAFELIGHT_MODELS: {path} has no model; each is a table, [name]")
    return Models(tuple(_spec(path, name, table) for name, table in tables.items()))


def _spec(path: Path, name: str, table: object) -> ModelSpec:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name}: each entry is a table, [{name}]")
    if "name" in table:
        raise ConfigError(f"{path}: [{name}.name]: the name of a model is that of its table")
    try:
        return ModelSpec.model_validate({"name": name, **table})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        entry = ".".join([name, *(str(part) for part in first["loc"])])
        raise ConfigError(f"{path}: [{entry}]: {first['msg'].removeprefix('Value error, ')}") from None
