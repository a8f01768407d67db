"""A request at a step boundary, as bytes: to go on in another engine at that very step, to the last bit.

The format is one safetensors file: tensors by number, and all else as JSON in its metadata. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .request import DiffusionRequest

VERSION = "1"
SEQUENCES: Mapping[str, type] = {"tuple": tuple, "list": list}


class NotACheckpoint(ValueError):
    """The bytes are no checkpoint of this version."""


@dataclass(frozen=True, slots=True)
class RowState:
    """Row `index` after `step` denoise steps. `state` is the adapter's own: nested dicts and sequences of arrays."""

    index: int
    step: int
    state: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The rows of one request: those under way, and the finished ones with the media that the adapter packed.

    `fingerprint` ties it to its request and model; for any other it is refused.
    """

    fingerprint: str
    rows: tuple[RowState, ...]
    done: Mapping[int, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def step(self) -> int:
        """The step of the row that is least far."""
        return min((row.step for row in self.rows), default=0)

    def row(self, index: int) -> RowState | None:
        return next((row for row in self.rows if row.index == index), None)

    def to_bytes(self) -> bytes:
        """Raises TypeError for a state that has something else than numbers, texts and arrays in it."""
        from safetensors.numpy import save

        arrays: dict[str, Any] = {}
        body = {
            "fingerprint": self.fingerprint,
            "rows": [{"index": r.index, "step": r.step, "state": _pack(r.state, arrays)} for r in self.rows],
            "done": [[index, _pack(parts, arrays)] for index, parts in self.done.items()],
        }
        return bytes(save(arrays, metadata={"safelight-checkpoint": VERSION, "body": json.dumps(body)}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Raises NotACheckpoint."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            size = int.from_bytes(data[:8], "little")
            metadata = json.loads(data[8 : 8 + size])["__metadata__"]
            if metadata["safelight-checkpoint"] != VERSION:
                raise NotACheckpoint(f"version {metadata['safelight-checkpoint']}, not {VERSION}")
            arrays = load(data)
            body = json.loads(metadata["body"])
            rows = tuple(RowState(r["index"], r["step"], _unpack(r["state"], arrays)) for r in body["rows"])
            done = {index: _unpack(parts, arrays) for index, parts in body["done"]}
            return cls(body["fingerprint"], rows, done)
        except (KeyError, TypeError, ValueError, SafetensorError) as error:
            raise NotACheckpoint(f"not a checkpoint: {error}") from error


def fingerprint(request: DiffusionRequest, model: str) -> str:
    """Equal for requests that make the same pictures on the same model, whatever their ids."""
    digest = hashlib.sha256(repr((model, request.prompt, request.params)).encode())
    for image in (request.image, request.mask_image):
        digest.update(b"-" if image is None else repr((image.mode, image.size)).encode() + image.tobytes())
    return digest.hexdigest()


def _pack(value: Any, arrays: dict[str, Any]) -> Any:
    import numpy as np

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return _pack(value.item(), arrays)
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_pack(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[key, _pack(item, arrays)] for key, item in value.items()]}
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _unpack(value: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]].reshape(value["shape"])
    if "dict" in value:
        return {key: _unpack(item, arrays) for key, item in value["dict"]}
    ((kind, items),) = value.items()
    return SEQUENCES[kind](_unpack(item, arrays) for item in items)
