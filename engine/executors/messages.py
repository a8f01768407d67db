"""All that crosses between an engine and its ranks. What a rank says carries the number of its incarnation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..adapter import Capabilities
from ..checkpoint import Checkpoint, RowState
from ..config import EngineConfig
from ..device_memory import DeviceMemory
from ..params import SamplingParams
from ..request import DiffusionRequest
from ..result import Aborted, Chunk, Completed, Event, Failed, Media, Metrics, Preview, Progress, Started
from ..stats import EngineStats, RunningGroup
from .wire import Wire

Word = Literal["method", "export", "pause", "resume"]


@dataclass(frozen=True, slots=True)
class Begin:
    """The first: be this incarnation, load this, and give a sign of life each `beat_s`."""

    epoch: int
    config: EngineConfig
    beat_s: float
    log_level: int


@dataclass(frozen=True, slots=True)
class Take:
    """Requests that start together, each with its age in seconds. Their ids are tickets, unique for all time."""

    requests: tuple[tuple[DiffusionRequest, float], ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Abort these."""

    tickets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answered in order. `timeout_s` counts from its arrival; what has not begun by then never will."""

    number: int
    word: Word
    name: str = ""
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Close the engine and end."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, while it loads without figures."""

    stats: EngineStats | None = None
    groups: tuple[RunningGroup, ...] = ()
    memory: DeviceMemory | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """Loaded and warm. `model` ties its checkpoints to the model."""

    capabilities: Capabilities
    model: str | None


@dataclass(frozen=True, slots=True)
class Broken:
    """Its engine could not load (`loading`) or has died; it ends."""

    reason: str
    loading: bool


@dataclass(frozen=True, slots=True)
class Told:
    """An event of the request of this ticket."""

    ticket: str
    event: Event


@dataclass(frozen=True, slots=True)
class Answer:
    """To an Ask: a value, or the error that it met."""

    number: int
    value: object = None
    error: object = None


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of its log."""

    name: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """The envelope of all that a rank says."""

    epoch: int
    report: Report


Command = Begin | Take | Drop | Ask | Leave
Report = Beat | Ready | Broken | Told | Answer | Logged

WIRE = Wire(
    (
        *(Begin, Take, Drop, Ask, Leave, Beat, Ready, Broken, Told, Answer, Logged, Said),
        *(EngineConfig, DiffusionRequest, SamplingParams, Checkpoint, RowState, Capabilities),
        *(Started, Progress, Preview, Chunk, Completed, Aborted, Failed, Media, Metrics),
        *(EngineStats, RunningGroup, DeviceMemory),
    )
)
