"""One held model call, the key by which it may be merged with others, and the merge."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .content import Contents
from .leaves import Kind, classify, leaf_key, merge, split
from .padding import can_pad, pad_texts, padding_key
from .rules import TextPadding
from .site import Site


@dataclass(eq=False, slots=True)
class ModelCall:
    """A call of `site` with all its arguments by name. `rows` is the first side of its primary input.

    `key` is equal for calls that may share a forward; one that may share with none has a key of its own. Not in it, and
    so free to differ: steps, clock, seed, guidance, noise scheduler, strength, task.
    """

    site: Site
    arguments: dict[str, Any]
    rows: int
    by_list: bool
    padded: tuple[TextPadding, ...]
    key: Hashable


def read_call(
    site: Site, arguments: dict[str, Any], contents: Contents, *, alone: bool = False, company: Hashable = None
) -> ModelCall:
    """`alone` keeps a call from every merge: its result is then that of plain diffusers to the last bit.

    `company` is what the calls of one forward must share beside their arguments, as the state of the model itself.
    """
    rows, by_list = _primary(arguments)
    if alone or not site.mergeable or rows == 0:
        return ModelCall(site, arguments, rows, by_list, (), object())
    padded = tuple(padding for padding in site.padded if can_pad(arguments, padding, rows))
    free = site.ignored | {name for padding in padded for name in padding.names}
    parts: list[Hashable] = [site, company, rows, *(padding_key(arguments, padding) for padding in padded)]
    parts += [
        (name, leaf_key(value, name, rows, by_list, contents.digest))
        for name, value in arguments.items()
        if name not in free
    ]
    return ModelCall(site, arguments, rows, by_list, padded, tuple(parts))


def read_again(before: ModelCall, arguments: dict[str, Any]) -> ModelCall | None:
    """The next call of the same function at the same site, whose arguments are mostly the very same objects.

    Equal to what `read_call` says, at a fraction of the time, or None where that has to look itself.
    """
    known = before.arguments
    if known.keys() != arguments.keys() or not before.site.mergeable:
        return None
    for name, value in arguments.items():
        if value is not known[name] and not _is_alike(name, value, known[name], before.rows):
            return None
    return ModelCall(before.site, arguments, before.rows, before.by_list, before.padded, before.key)


def _is_alike(name: str, value: Any, other: Any, rows: int) -> bool:
    """Whether both count the same in a key, as far as that is seen without looking into them."""
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        kind = classify(value, name, rows, False)
        return kind in (Kind.ROWS, Kind.CLOCK) and value.shape == other.shape and value.dtype == other.dtype
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(item is other[key] for key, item in value.items())
    return type(value) in (int, float, str, bool) and type(value) is type(other) and bool(value == other)


def run_calls(calls: Sequence[ModelCall]) -> list[Any]:
    """The result of each, from one forward for all. Raises what the model raises, or CannotSplit."""
    first = calls[0]
    if len(calls) == 1:
        return [first.site.original(**first.arguments)]
    output = first.site.original(**merged(calls))
    return split(output, first.rows, len(calls), first.by_list)


def merged(calls: Sequence[ModelCall]) -> dict[str, Any]:
    """The arguments of one call that does the work of all. Never fails for calls of equal key."""
    first = calls[0]
    arguments = pad_texts([call.arguments for call in calls], first.padded)
    return {
        name: merge([one.get(name) for one in arguments], name, first.rows, first.by_list)
        for name in arguments[0]
        if name not in first.site.ignored
    }


def _primary(arguments: Mapping[str, Any]) -> tuple[int, bool]:
    """The rows of a call, and whether its primary input is a list of them. No rows: nothing to merge by."""
    for value in arguments.values():
        if isinstance(value, torch.Tensor) and value.ndim >= 2:
            return value.shape[0], False
        if isinstance(value, list) and value and all(isinstance(item, torch.Tensor) for item in value):
            return len(value), True
    return 0, False
