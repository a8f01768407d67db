"""How one argument of a model call takes part in a merge: read into a key, merged with its likes, split again.

`classify` is the only judge. The key is made from its answer and the merge follows it, so two calls of equal key always
collate: for each argument they have the same kind, and all that the kind needs for a merge is in the key.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

import torch

from .rules import CLOCKS, TABLES, UNREAD

PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class Kind(Enum):
    #: `[rows, …]`: one entry a row
    ROWS = "rows"
    #: one number for all rows of the call
    CLOCK = "clock"
    #: a tensor that must be equal, bit for bit, in all calls
    TABLE = "table"
    #: a list of tensors, one a row, each of a shape of its own
    ROW_LIST = "row list"
    #: must be equal
    PLAIN = "plain"
    MAPPING = "mapping"
    SEQUENCE = "sequence"
    #: must be the same object
    OBJECT = "object"


def classify(value: Any, name: str, rows: int, by_list: bool) -> Kind:
    """`by_list` says that the call's primary input is a list of rows, as Z-Image's is."""
    if isinstance(value, torch.Tensor):
        if name in CLOCKS and value.numel() == 1 and value.ndim <= 1:
            return Kind.CLOCK
        if name in TABLES or value.ndim == 0 or value.shape[0] != rows:
            return Kind.TABLE
        return Kind.ROWS
    if isinstance(value, PLAIN):
        return Kind.PLAIN
    if isinstance(value, dict):
        return Kind.MAPPING
    if isinstance(value, list | tuple):
        if by_list and len(value) == rows and all(isinstance(item, torch.Tensor) for item in value):
            return Kind.ROW_LIST
        return Kind.SEQUENCE
    return Kind.OBJECT


def leaf_key(value: Any, name: str, rows: int, by_list: bool, digest: Callable[[torch.Tensor], bytes]) -> Hashable:
    """What must be equal in two calls for this argument to be merged."""
    kind = classify(value, name, rows, by_list)
    match kind:
        case Kind.ROWS:
            return kind, value.dtype, value.shape[1:]
        case Kind.CLOCK:
            return kind
        case Kind.TABLE:
            return kind, digest(value)
        case Kind.ROW_LIST:
            return kind, tuple((item.dtype, item.ndim) for item in value)
        case Kind.PLAIN:
            return kind, type(value), value
        case Kind.MAPPING:
            return kind, tuple((key, leaf_key(item, key, rows, by_list, digest)) for key, item in value.items())
        case Kind.SEQUENCE:
            return kind, type(value), tuple(leaf_key(item, name, rows, by_list, digest) for item in value)
        case Kind.OBJECT:
            return kind, id(value)


def merge(values: Sequence[Any], name: str, rows: int, by_list: bool) -> Any:
    """One argument for all calls, index-major: row 0 of every call, then row 1 of every call, and so on.

    A model that halves its own batch (classifier-free guidance in one forward) then still finds its halves.
    """
    first = values[0]
    match classify(first, name, rows, by_list):
        case Kind.ROWS:
            return torch.cat(list(values)) if rows == 1 else torch.stack(list(values), dim=1).flatten(0, 1)
        case Kind.CLOCK:
            return _clocks(values).repeat(rows)
        case Kind.ROW_LIST:
            return type(first)(value[row] for row in range(rows) for value in values)
        case Kind.MAPPING:
            return {key: merge([value[key] for value in values], key, rows, by_list) for key in first}
        case Kind.SEQUENCE:
            return type(first)(merge(list(items), name, rows, by_list) for items in zip(*values, strict=True))
        case _:
            return first


def _clocks(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """One number a call, `[calls]`. Some noise schedulers have whole timesteps, others not; float32 holds both."""
    dtypes = {value.dtype for value in values}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    return torch.stack([value.reshape(()).to(dtype) for value in values])


class CannotSplit(Exception):
    """The model's output has a part that does not say which rows it belongs to."""


def split(output: Any, rows: int, calls: int, by_list: bool) -> list[Any]:
    """The output of a merged call, one for each call, in order. Raises CannotSplit."""
    if output is None or (isinstance(output, PLAIN) and not isinstance(output, torch.Size)):
        return [output] * calls
    if isinstance(output, UNREAD):
        return [None] * calls
    if isinstance(output, torch.Tensor):
        if output.ndim == 0 or output.shape[0] != rows * calls:
            raise CannotSplit(f"a tensor of shape {tuple(output.shape)} for {rows} rows of {calls} calls")
        if rows == 1:
            return list(torch.split(output, 1))
        return list(output.reshape(rows, calls, *output.shape[1:]).unbind(1))
    if by_list and isinstance(output, list) and len(output) == rows * calls:
        return [output[call::calls] for call in range(calls)]
    if isinstance(output, Mapping):  # transformers' and diffusers' outputs are mappings and dataclasses in one
        parts = {key: split(item, rows, calls, by_list) for key, item in output.items()}
        return [type(output)(**{str(key): items[call] for key, items in parts.items()}) for call in range(calls)]
    if is_dataclass(output):
        named = {field.name: split(getattr(output, field.name), rows, calls, by_list) for field in fields(output)}
        kind = cast(Callable[..., Any], type(output))
        return [kind(**{name: items[call] for name, items in named.items()}) for call in range(calls)]
    if isinstance(output, list | tuple):
        each = [split(item, rows, calls, by_list) for item in output]
        return [type(output)(items[call] for items in each) for call in range(calls)]
    raise CannotSplit(f"a {type(output).__name__}")
