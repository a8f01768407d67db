"""Texts of different length made equal, for the models that mask what is padding."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch

from .rules import TextPadding


def can_pad(arguments: Mapping[str, Any], padding: TextPadding, rows: int) -> bool:
    """Whether the call brings a text of the expected shape, and a mask that fits it or none."""
    text, mask = arguments.get(padding.text), arguments.get(padding.mask)
    if not isinstance(text, torch.Tensor) or text.ndim != 3 or text.shape[0] != rows:
        return False
    return mask is None or (isinstance(mask, torch.Tensor) and mask.shape == text.shape[:2])


def padding_key(arguments: Mapping[str, Any], padding: TextPadding, members: int = 1) -> Hashable:
    """What must be equal for two texts to be padded to one length: all but the length."""
    text = arguments[padding.text]
    lengths = None if padding.lengths is None else arguments.get(padding.lengths)
    return padding, text.dtype, text.shape[2], None if lengths is None else len(lengths) / members


def pad_texts(calls: Sequence[Mapping[str, Any]], paddings: Sequence[TextPadding]) -> list[dict[str, Any]]:
    """The arguments of each call with every padded text at the longest one's tokens, masks and lengths along.

    A text that needs no padding and has no mask in any call stays as it is.
    """
    padded = [dict(call) for call in calls]
    for padding in paddings:
        _pad(padded, padding)
    return padded


def _pad(calls: Sequence[dict[str, Any]], padding: TextPadding) -> None:
    tokens = max(call[padding.text].shape[1] for call in calls)
    if padding.lengths is not None:
        for call in calls:
            if call.get(padding.lengths) is not None:
                call[padding.lengths] = [tokens] * len(call[padding.lengths])
    masked = any(call.get(padding.mask) is not None for call in calls)
    if masked or any(call[padding.text].shape[1] != tokens for call in calls):
        for call in calls:
            _pad_text(call, padding, tokens)


def _pad_text(call: dict[str, Any], padding: TextPadding, tokens: int) -> None:
    text, mask = call[padding.text], call.get(padding.mask)
    missing = tokens - text.shape[1]
    mask = text.new_ones(text.shape[:2], dtype=torch.bool) if mask is None else mask.to(torch.bool)
    call[padding.text] = torch.nn.functional.pad(text, (0, 0, 0, missing))
    call[padding.mask] = torch.nn.functional.pad(mask, (0, missing), value=False)
