"""Records, arrays and pictures as bytes, between an engine and its ranks. JSON for the shape, raw buffers behind it.

No pickle: what is read back is plain data or one of the listed records, whatever the bytes say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from PIL import Image

from ..errors import (
    DeviceLost,
    EngineClosed,
    EngineDead,
    InvalidImage,
    InvalidRequest,
    ModelError,
    ModelLoadError,
    OutOfMemory,
    QueueFull,
    RankError,
    RankLost,
)

Buffer = bytes | bytearray | memoryview

#: An error of one of these classes arrives as itself, any other as RankError. None of ours but takes one text.
ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, OSError, RuntimeError),
        *(TimeoutError, TypeError, ValueError, ZeroDivisionError),
        *(DeviceLost, EngineClosed, EngineDead, InvalidImage, InvalidRequest, ModelError, ModelLoadError),
        *(OutOfMemory, QueueFull, RankError, RankLost),
    )
}
#: Modes whose bytes are all there is to a picture.
_PLAIN_MODES = frozenset({"1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16"})


class Wire:
    """Writes and reads what consists of plain data, arrays, pictures, errors and the given frozen records."""

    def __init__(self, records: Sequence[type]) -> None:
        self._records = {record.__name__: record for record in records}
        assert len(self._records) == len(records)

    def pack(self, value: object) -> list[Buffer]:
        """A head and the buffers behind it; arrays are not copied. Raises TypeError for what cannot cross."""
        buffers: list[Buffer] = []
        body = self._pack(value, buffers)
        sizes = [memoryview(buffer).nbytes for buffer in buffers]
        return [json.dumps({"body": body, "sizes": sizes}).encode(), *buffers]

    def sizes(self, head: bytes) -> list[int]:
        """Bytes of each buffer that follows."""
        return [int(size) for size in json.loads(head)["sizes"]]

    def unpack(self, head: bytes, buffers: Sequence[Buffer]) -> Any:
        """Undo `pack`; arrays are views of their buffers. Raises ValueError, KeyError, TypeError for other bytes."""
        return self._unpack(json.loads(head)["body"], buffers)

    def _pack(self, value: Any, buffers: list[Buffer]) -> Any:
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value
        if is_dataclass(value):
            return self._pack_record(value, buffers)
        match value:
            case np.ndarray():
                if value.dtype.hasobject:
                    raise TypeError("an array of objects cannot go to or come from a rank")
                number = _add(buffers, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
                return {"array": number, "dtype": value.dtype.str, "shape": value.shape}
            case np.generic():
                return self._pack(value.item(), buffers)
            case bytes() | bytearray() | memoryview():
                return {"bytes": _add(buffers, value)}
            case Image.Image():
                plain = value if value.mode in _PLAIN_MODES else value.convert("RGBA")
                return {"image": _add(buffers, plain.tobytes()), "mode": plain.mode, "size": plain.size}
            case BaseException():
                return {"error": type(value).__name__, "text": str(value)}
            case list():
                return {"list": [self._pack(item, buffers) for item in value]}
            case tuple():
                return {"tuple": [self._pack(item, buffers) for item in value]}
            case set() | frozenset():
                return {"set": [self._pack(item, buffers) for item in value]}
            case Mapping():
                return {"dict": [[self._pack(part, buffers) for part in pair] for pair in value.items()]}
        raise TypeError(f"a {type(value).__name__} cannot go to or come from a rank")

    def _pack_record(self, value: Any, buffers: list[Buffer]) -> Any:
        name, parts = type(value).__name__, fields(value)
        if self._records.get(name) is not type(value):
            raise TypeError(f"a {name} cannot go to or come from a rank")
        return {"record": name, "fields": [self._pack(getattr(value, item.name), buffers) for item in parts]}

    def _unpack(self, value: Any, buffers: Sequence[Buffer]) -> Any:
        if not isinstance(value, dict):
            return value
        match value:
            case {"record": name, "fields": parts}:
                record: Any = self._records[name]
                names = [item.name for item in fields(record)]
                return record(**dict(zip(names, (self._unpack(part, buffers) for part in parts), strict=True)))
            case {"array": number, "dtype": dtype, "shape": shape}:
                return np.frombuffer(buffers[number], np.uint8).view(np.dtype(dtype)).reshape(shape)
            case {"bytes": number}:
                return bytes(buffers[number])
            case {"image": number, "mode": mode, "size": size}:
                return Image.frombytes(mode, tuple(size), bytes(buffers[number]))
            case {"error": name, "text": text}:
                return ERRORS[name](text) if name in ERRORS else RankError(f"{name}: {text}")
            case {"list": items}:
                return [self._unpack(item, buffers) for item in items]
            case {"tuple": items}:
                return tuple(self._unpack(item, buffers) for item in items)
            case {"set": items}:
                return frozenset(self._unpack(item, buffers) for item in items)
            case {"dict": pairs}:
                return {self._unpack(key, buffers): self._unpack(item, buffers) for key, item in pairs}
        raise ValueError(f"nothing known on the wire: {sorted(value)}")


def _add(buffers: list[Buffer], buffer: Buffer) -> int:
    buffers.append(buffer)
    return len(buffers) - 1
