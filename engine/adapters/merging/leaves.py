"""How one argument of a model call takes part in a merge: read into a key, merged with its likes, split again.

`classify` is the only judge. The key is made from its answer and the merge follows it, so two calls of equal key always
collate: for each argument they have the same kind, and all that the kind needs for a merge is in the key.

A call may be that of a gang: then it has `members`, each with `rows` of its own, and is merged already. Rows lie
index-major everywhere: row 0 of every member of every call, then row 1 of every member, and so on.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, cast

import torch

from .kept import Kept
from .rules import CLOCKS, REPEATED, TABLES, UNREAD

PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of a call. `by_list` says that its primary input is a list of rows, as Z-Image's is."""

    rows: int
    members: int = 1
    by_list: bool = False
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.rows * self.members)


class Kind(Enum):
    #: `[rows, …]`: one entry a row
    ROWS = "rows"
    #: one number for all rows of the call, or one a row
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


#: a merged call takes them from any of its calls
SHARED = (Kind.TABLE, Kind.PLAIN, Kind.OBJECT)


def classify(value: Any, name: str, layout: Layout) -> Kind:
    if isinstance(value, torch.Tensor):
        if name in CLOCKS and value.ndim <= 1 and value.numel() in (1, layout.total):
            return Kind.CLOCK
        if name in TABLES or value.ndim == 0 or value.shape[0] != layout.total:
            return Kind.TABLE
        return Kind.ROWS
    if isinstance(value, PLAIN):
        return Kind.PLAIN
    if isinstance(value, dict):
        return Kind.MAPPING
    if isinstance(value, list | tuple):
        if layout.by_list and len(value) == layout.total and all(isinstance(item, torch.Tensor) for item in value):
            return Kind.ROW_LIST
        return Kind.SEQUENCE
    return Kind.OBJECT


def leaf_key(value: Any, name: str, layout: Layout, digest: Callable[[torch.Tensor], bytes]) -> Hashable:
    """What must be equal in two calls for this argument to be merged."""
    kind = classify(value, name, layout)
    match kind:
        case Kind.ROWS:
            return kind, value.dtype, value.shape[1:]
        case Kind.CLOCK:
            return kind
        case Kind.TABLE:
            return kind, digest(value)
        case Kind.ROW_LIST:
            each = {
                tuple((item.dtype, item.ndim) for item in value[i :: layout.members]) for i in range(layout.members)
            }
            return kind, each.pop() if len(each) == 1 else object()
        case Kind.PLAIN:
            return kind, type(value), value
        case Kind.MAPPING:
            return kind, tuple((key, leaf_key(item, key, layout, digest)) for key, item in value.items())
        case Kind.SEQUENCE:
            items = of_one_member(value, layout)
            return kind, type(value), tuple(leaf_key(item, name, layout, digest) for item in items)
        case Kind.OBJECT:
            return kind, id(value)


def of_one_member(value: Any, layout: Layout) -> Any:
    """A sequence of plain values that a gang's pipeline repeats for each row, as one member alone would have it."""
    repeats = layout.members > 1 and len(value) == layout.total and all(item == value[0] for item in _plain(value))
    return value[: layout.rows] if repeats else value


def _plain(value: Any) -> Any:
    """The items, unless there is a tensor in one: those have rows of their own, or are none."""
    return value if not any(map(_has_tensor, value)) else [object()]


def _has_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, list | tuple) and any(map(_has_tensor, value)))


def merge(values: Sequence[Any], name: str, layouts: Sequence[Layout], kept: Kept, kind: Kind | None = None) -> Any:
    """One argument for all calls, index-major. `kind` is what `classify` says, where that is known.

    A model that halves its own batch (classifier-free guidance in one forward) then still finds its halves.
    """
    first, layout = values[0], layouts[0]
    match kind or classify(first, name, layout):
        case Kind.ROWS:
            if name not in REPEATED:
                return merge_rows(values, layouts)
            known = kept.get(name, values)
            return kept.put(name, values, merge_rows(values, layouts)) if known is None else known
        case Kind.CLOCK:
            return _clocks(values, layouts)
        case Kind.ROW_LIST:
            per_row = (
                value[row * one.members : (row + 1) * one.members]
                for row in range(layout.rows)
                for value, one in zip(values, layouts, strict=True)
            )
            return type(first)(item for items in per_row for item in items)
        case Kind.MAPPING:
            return {key: merge([value[key] for value in values], key, layouts, kept) for key in first}
        case Kind.SEQUENCE:
            each = [of_one_member(value, one) for value, one in zip(values, layouts, strict=True)]
            return type(first)(merge(list(items), name, layouts, kept) for items in zip(*each, strict=True))
        case _:
            return first


def merge_rows(values: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> torch.Tensor:
    """Tensors `[rows * members, …]` of calls with equal `rows`."""
    rows = layouts[0].rows
    if rows == 1:
        return torch.cat(list(values))
    if all(one.members == 1 for one in layouts):
        return torch.stack(list(values), dim=1).flatten(0, 1)
    by_member = [value.reshape(rows, one.members, *value.shape[1:]) for value, one in zip(values, layouts, strict=True)]
    return torch.cat(by_member, dim=1).flatten(0, 1)


def _clocks(values: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> torch.Tensor:
    """One number a row. Some noise schedulers have whole timesteps, others not; float32 holds both."""
    dtypes = {value.dtype for value in values}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    if not dtypes and all(value.ndim == 0 for value in values) and all(one.members == 1 for one in layouts):
        stacked = torch.stack(list(values))  # the same, and the usual
        return torch.cat([stacked] * layouts[0].rows) if layouts[0].rows > 1 else stacked
    each = [value.to(dtype).reshape(-1).expand(one.total) for value, one in zip(values, layouts, strict=True)]
    return merge_rows(each, layouts)


class CannotSplit(Exception):
    """The model's output has a part that does not say which rows it belongs to."""


def split(output: Any, layouts: Sequence[Layout]) -> list[Any]:
    """The output of a merged call, one for each call, in order. Raises CannotSplit."""
    first = layouts[0]
    if output is None or (isinstance(output, PLAIN) and not isinstance(output, torch.Size)):
        return [output] * len(layouts)
    if isinstance(output, UNREAD):
        return [None] * len(layouts)
    if isinstance(output, torch.Tensor):
        return _split_rows(output, layouts)
    if first.by_list and isinstance(output, list) and len(output) == sum(one.total for one in layouts):
        return _split_list(output, layouts)
    if isinstance(output, Mapping):  # transformers' and diffusers' outputs are mappings and dataclasses in one
        parts = {key: split(item, layouts) for key, item in output.items()}
        return [type(output)(**{str(key): items[call] for key, items in parts.items()}) for call in range(len(layouts))]
    if is_dataclass(output):
        named = {field.name: split(getattr(output, field.name), layouts) for field in fields(output)}
        kind = cast(Callable[..., Any], type(output))
        return [kind(**{name: items[call] for name, items in named.items()}) for call in range(len(layouts))]
    if isinstance(output, list | tuple):
        each = [split(item, layouts) for item in output]
        return [type(output)(items[call] for items in each) for call in range(len(layouts))]
    raise CannotSplit(f"a {type(output).__name__}")


def _split_rows(output: torch.Tensor, layouts: Sequence[Layout]) -> list[torch.Tensor]:
    rows, widths = layouts[0].rows, [one.members for one in layouts]
    num_members = sum(widths)
    if output.ndim == 0 or output.shape[0] != rows * num_members:
        raise CannotSplit(f"a tensor of shape {tuple(output.shape)} for {rows} rows of {num_members} calls")
    if rows == 1:
        return list(torch.split(output, widths))
    by_row = output.reshape(rows, num_members, *output.shape[1:])
    if num_members == len(widths):
        return list(by_row.unbind(1))
    return [part.flatten(0, 1) for part in torch.split(by_row, widths, dim=1)]


def _split_list(output: list[Any], layouts: Sequence[Layout]) -> list[list[Any]]:
    num_members, begin, parts = sum(one.members for one in layouts), 0, []
    for one in layouts:
        firsts = range(begin, begin + one.rows * num_members, num_members)
        parts.append([item for first in firsts for item in output[first : first + one.members]])
        begin += one.members
    return parts
