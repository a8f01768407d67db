"""Everything that is fixed when an engine starts. Checked once, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Mode = Literal["auto", "request", "step"]
Offload = Literal["model", "sequential"]
ExecutorKind = Literal["inline", "process"]
Parallel = Literal["context", "tensor", "shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to load and serve one model. Raises ValueError naming the field.

    `model` is a path, a hub id, `bundled:tiny` or `fake:…` (see `engine.testing`). `max_batch_rows` bounds the rows of
    one pipeline call or, in step mode, forward; step mode has up to twice as many under way, if it is above 1. The
    oldest of compatible requests waits at most `admission_wait_ms` for company. Batch-mates are looked for among the
    first `look_ahead` waiting requests, no request is overtaken by more than `max_passes` batches, and waiting
    `ageing_s` is worth one level of priority. `max_waiting` bounds the waiting requests. `pipeline_class` is one of
    diffusers by name, any other by dotted path or the class itself; `engine_backend` is "default", a subclass of
    DiffusionEngine, or its dotted path.
    `loras` are the sources of LoRA adapters by the name that a request uses: a safetensors file, a folder, or a hub
    id; `max_loras` bounds those that are in memory at a time. `vae_tiling`, `vae_slicing` and `attention_backend` are
    diffusers' own, and refused when the model loads where it has no such thing. Step mode keeps up to `prompt_cache_mb`
    of encoded texts (MiB, on the device) for prompts that come again.
    `executor` "process" gives each of `devices` (or `device` alone) a spawned process, a *rank*, with `max_batch_rows`
    of its own; requests wait in front and go to whichever rank suits them. One that gives no sign of life for
    `silence_s`, or has requests and moves none of them for `wave_deadline_s`, is killed. A lost rank is started again
    after `restart_backoff_s`, twice as long each time in a row, and given up after `max_restarts` of those.
    `parallel` makes all `devices` serve one request at a time, together, in either executor: "context" divides the
    sequence that attention sees, "tensor" the heads and columns of each layer, "shard" the weights between the calls.
    """

    model: str
    revision: str | None = None
    dtype: Dtype = "auto"
    device: str = "auto"
    mode: Mode = "auto"
    max_batch_rows: int = 8
    admission_wait_ms: float = 20.0
    look_ahead: int = 128
    max_passes: int = 8
    ageing_s: float = 10.0
    max_waiting: int = 1024
    warmup: bool = True
    offload: Offload | None = None
    compile: bool = False
    pipeline_class: str | type | None = None
    engine_backend: str | type | None = None
    allow_pickle: bool = False
    local_files_only: bool = False
    num_threads: int | None = None
    loras: Mapping[str, str] = field(default_factory=dict)
    max_loras: int = 8
    vae_tiling: bool = False
    vae_slicing: bool = False
    attention_backend: str | None = None
    prompt_cache_mb: int = 0
    executor: ExecutorKind = "inline"
    devices: tuple[str, ...] = ()
    silence_s: float = 30.0
    wave_deadline_s: float = 600.0
    max_restarts: int = 3
    restart_backoff_s: float = 1.0
    parallel: Parallel | None = None

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must name a path, a hub id or a bundled model")
        _require_choice("dtype", self.dtype, get_args(Dtype))
        _require_choice("mode", self.mode, get_args(Mode))
        _require_choice("offload", self.offload, (None, *get_args(Offload)))
        for name, value in (
            ("max_batch_rows", self.max_batch_rows),
            ("look_ahead", self.look_ahead),
            ("max_passes", self.max_passes),
            ("max_waiting", self.max_waiting),
            ("num_threads", self.num_threads),
            ("max_loras", self.max_loras),
        ):
            if name != "num_threads" or value is not None:
                _require_count(name, value)
        if self.loras and (self.compile or self.offload is not None):
            raise ValueError(
                "loras cannot be combined with compile or offload, which expect a model that stays as it is"
            )
        if self.prompt_cache_mb < 0:
            raise ValueError(f"prompt_cache_mb must be at least 0, not {self.prompt_cache_mb}")
        if self.admission_wait_ms < 0:
            raise ValueError(f"admission_wait_ms must be at least 0, not {self.admission_wait_ms}")
        if self.ageing_s <= 0:
            raise ValueError(f"ageing_s must be above 0, not {self.ageing_s}")
        self._check_ranks()

    def _check_ranks(self) -> None:
        _require_choice("executor", self.executor, get_args(ExecutorKind))
        _require_choice("parallel", self.parallel, (None, *get_args(Parallel)))
        if self.parallel is not None:
            self._check_parallel()
        elif self.devices and self.executor == "inline":
            raise ValueError('devices needs executor = "process"; one device of this process is `device`')
        if self.devices and self.device != "auto":
            raise ValueError(f"devices and device = {self.device!r} exclude each other")
        for name in ("silence_s", "wave_deadline_s", "restart_backoff_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts must be at least 0, not {self.max_restarts}")

    def _check_parallel(self) -> None:
        if len(self.devices) < 2:
            raise ValueError("parallel needs two devices or more")
        if self.loras or self.compile or self.offload is not None:
            raise ValueError("parallel cannot be combined with loras, compile or offload")


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be at least 1, not {value!r}")


def _require_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
