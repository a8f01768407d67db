"""A gang's model call taken apart by its members, and answers for members put together again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import torch

from .leaves import Kind, Layout, classify, merge_rows, of_one_member


def take(value: Any, name: str, layout: Layout, members: Sequence[int]) -> Any:
    """One argument of a call of `layout`, for these members alone."""
    match classify(value, name, layout):
        case Kind.ROWS:
            return _take_rows(value, layout, members)
        case Kind.CLOCK:
            return value if value.numel() == 1 else _take_rows(value, layout, members)
        case Kind.ROW_LIST:
            return take_items(list(value), layout, members)
        case Kind.MAPPING:
            return {key: take(item, key, layout, members) for key, item in value.items()}
        case Kind.SEQUENCE:
            one = of_one_member(value, layout)
            return (
                one * len(members) if one is not value else type(value)(take(v, name, layout, members) for v in value)
            )
        case _:
            return value


def take_items(value: Any, layout: Layout, members: Sequence[int]) -> Any:
    """Of a list with one item a row; anything else as it is."""
    if not isinstance(value, list) or len(value) != layout.total:
        return value
    return [value[row * layout.members + i] for row in range(layout.rows) for i in members]


def join(answers: Sequence[Any], layout: Layout) -> Any:
    """Undo `split`: what each member got, in order, as one answer for all of them."""
    first = answers[0]
    if isinstance(first, torch.Tensor):
        return merge_rows(answers, [Layout(layout.rows)] * len(answers))
    if layout.by_list and isinstance(first, list) and len(first) == layout.rows:
        return [answer[row] for row in range(layout.rows) for answer in answers]
    if isinstance(first, Mapping):
        return type(first)(**{str(key): join([answer[key] for answer in answers], layout) for key in first})
    if is_dataclass(first):
        kind = cast(Callable[..., Any], type(first))
        names = [field.name for field in fields(first)]
        return kind(**{name: join([getattr(answer, name) for answer in answers], layout) for name in names})
    if isinstance(first, list | tuple):
        return type(first)(join(items, layout) for items in zip(*answers, strict=True))
    return first


def blank(answer: Any) -> Any:
    """Zeros of its shape: for a member that nobody waits for any more."""
    if isinstance(answer, torch.Tensor):
        return torch.zeros_like(answer)
    if isinstance(answer, Mapping):
        return type(answer)(**{str(key): blank(item) for key, item in answer.items()})
    if is_dataclass(answer):
        kind = cast(Callable[..., Any], type(answer))
        return kind(**{field.name: blank(getattr(answer, field.name)) for field in fields(answer)})
    if isinstance(answer, list | tuple):
        return type(answer)(map(blank, answer))
    return answer


def _take_rows(value: torch.Tensor, layout: Layout, members: Sequence[int]) -> torch.Tensor:
    if len(members) == 1:
        return value[members[0] :: layout.members].contiguous()
    return value.reshape(layout.rows, layout.members, *value.shape[1:])[:, list(members)].flatten(0, 1)
