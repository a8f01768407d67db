"""One held model call, the key by which it may be merged with others, and the merge."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .content import Contents
from .leaves import SHARED, Kind, Layout, classify, leaf_key, merge, split
from .members import take, take_items
from .padding import can_pad, pad_texts, padding_key
from .rules import TextPadding
from .site import Site


@dataclass(eq=False, slots=True)
class ModelCall:
    """A call of `site` with all its arguments by name. `layout` is read from the first side of its primary input.

    `key` is equal for calls that may share a forward; one that may share with none has a key of its own. Not in it, and
    so free to differ: steps, clock, seed, guidance, noise scheduler, strength, task, and how many members the call has.
    `kinds` are those of the arguments. `whole` says that the call can only be run as it is.
    """

    site: Site
    arguments: dict[str, Any]
    layout: Layout
    padded: tuple[TextPadding, ...]
    kinds: Mapping[str, Kind]
    key: Hashable
    whole: bool = False

    def of(self, members: Sequence[int]) -> "ModelCall":
        """The same call for some of its members alone."""
        layout = self.layout
        if self.whole or len(members) == layout.members:
            return self
        lengths = {padding.lengths for padding in self.padded}
        arguments = {
            name: take_items(value, layout, members) if name in lengths else take(value, name, layout, members)
            for name, value in self.arguments.items()
        }
        fewer = Layout(layout.rows, len(members), layout.by_list)
        return ModelCall(self.site, arguments, fewer, self.padded, self.kinds, self.key)

    def each(self) -> list["ModelCall"]:
        """The same call for each of its members."""
        return [self] if self.layout.members == 1 else [self.of([member]) for member in range(self.layout.members)]


def read_call(
    site: Site,
    arguments: dict[str, Any],
    contents: Contents,
    *,
    alone: bool = False,
    company: Hashable = None,
    members: int = 1,
) -> ModelCall:
    """`alone` keeps a call from every merge: its result is then that of plain diffusers to the last bit.

    `company` is what the calls of one forward must share beside their arguments, as the state of the model itself.
    `members` is the number of rows of a request that the pipeline call has: the size of its gang.
    """
    total, by_list = _primary(arguments)
    layout = Layout(total // members, members, by_list)
    whole = alone or not site.mergeable or total == 0 or total % members != 0
    if whole:
        layout = Layout(total, 1, by_list)
    kinds = {name: classify(value, name, layout) for name, value in arguments.items()}
    if whole:
        return ModelCall(site, arguments, layout, (), kinds, object(), whole=True)
    padded = tuple(padding for padding in site.padded if can_pad(arguments, padding, total))
    free = site.ignored | {name for padding in padded for name in padding.names}
    parts: list[Hashable] = [site, company, layout.rows]
    parts += [padding_key(arguments, padding, members) for padding in padded]
    parts += [
        (name, leaf_key(value, name, layout, contents.digest)) for name, value in arguments.items() if name not in free
    ]
    return ModelCall(site, arguments, layout, padded, kinds, contents.key(tuple(parts)))


def read_again(before: ModelCall, arguments: dict[str, Any]) -> ModelCall | None:
    """The next call of the same function at the same site, whose arguments are mostly the very same objects.

    It is `before` itself, which has its answer, with these arguments: equal to what `read_call` says, at a fraction of
    the time. None, and nothing has changed, where that has to look itself.
    """
    known, kinds = before.arguments, before.kinds
    if known.keys() != arguments.keys() or not before.site.mergeable:
        return None
    for name, value in arguments.items():
        was = known[name]
        if value is not was and not _is_alike(kinds[name], value, was):
            return None
    before.arguments = arguments
    return before


def _is_alike(kind: Kind, value: Any, other: Any) -> bool:
    """Whether both count the same in a key, as far as that is seen without looking into them."""
    if kind is Kind.ROWS or kind is Kind.CLOCK:
        return isinstance(value, torch.Tensor) and value.shape == other.shape and value.dtype is other.dtype
    if kind is Kind.MAPPING:
        same = isinstance(value, dict) and value.keys() == other.keys()
        return same and all(item is other[key] for key, item in value.items())
    return type(value) in (int, float, str, bool) and type(value) is type(other) and bool(value == other)


def run_calls(calls: Sequence[ModelCall]) -> list[Any]:
    """The result of each, from one forward for all. Raises what the model raises, or CannotSplit."""
    first = calls[0]
    if len(calls) == 1:
        return [first.site.original(**first.arguments)]
    output = first.site.original(**merged(calls))
    return split(output, [call.layout for call in calls])


def merged(calls: Sequence[ModelCall]) -> dict[str, Any]:
    """The arguments of one call that does the work of all. Never fails for calls of equal key."""
    first = calls[0]
    each: Sequence[Mapping[str, Any]] = [call.arguments for call in calls]
    if first.padded:
        each = pad_texts(each, first.padded)
    layouts = [call.layout for call in calls]
    together = {}
    for name, value in each[0].items():
        kind = None if first.padded else first.kinds[name]  # padding makes another argument of some
        if kind in SHARED:
            together[name] = value
        elif name not in first.site.ignored:
            values = [one.get(name) for one in each]
            together[name] = merge(values, name, layouts, first.site.merged, kind)
    return together


def _primary(arguments: Mapping[str, Any]) -> tuple[int, bool]:
    """The rows of a call, and whether its primary input is a list of them. No rows: nothing to merge by."""
    for value in arguments.values():
        if isinstance(value, torch.Tensor) and value.ndim >= 2:
            return value.shape[0], False
        if isinstance(value, list) and value and all(isinstance(item, torch.Tensor) for item in value):
            return len(value), True
    return 0, False
