"""Safelight's diffusion engine: one device thread, continuous admission, batches of compatible rows.

Importing this package is cheap: torch and diffusers are imported when an engine loads its model, not before.
It knows nothing of queues, storage or HTTP.
"""

from .adapter import Capabilities, PipelineAdapter
from .backend import resolve_engine_class
from .checkpoint import Checkpoint, NotACheckpoint
from .config import EngineConfig
from .core import DiffusionEngine
from .device_memory import DeviceMemory, room_bytes
from .errors import EngineClosed, EngineDead, InvalidRequest, ModelLoadError, QueueFull, RankError, RankLost
from .params import SamplingParams
from .request import DiffusionRequest
from .result import (
    Aborted,
    Chunk,
    Completed,
    ErrorType,
    Event,
    Failed,
    Media,
    Metrics,
    Modality,
    Preview,
    Progress,
    Stage,
    Started,
)
from .stats import EngineStats, RunningGroup
from .stream import OutputStream

__all__ = [
    "Aborted",
    "Capabilities",
    "Checkpoint",
    "Chunk",
    "Completed",
    "DeviceMemory",
    "DiffusionEngine",
    "DiffusionRequest",
    "EngineClosed",
    "EngineConfig",
    "EngineDead",
    "EngineStats",
    "ErrorType",
    "Event",
    "Failed",
    "InvalidRequest",
    "Media",
    "Metrics",
    "Modality",
    "ModelLoadError",
    "NotACheckpoint",
    "OutputStream",
    "PipelineAdapter",
    "Preview",
    "Progress",
    "QueueFull",
    "RankError",
    "RankLost",
    "RunningGroup",
    "SamplingParams",
    "Stage",
    "Started",
    "resolve_engine_class",
    "room_bytes",
]
