"""Texts that were encoded before: a text encoder that is asked the same again, bit for bit, need not work again.

Only answers of unmerged forwards are kept, so that what is given again is what plain diffusers would have made.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

import torch

from .call import ModelCall
from .content import Contents
from .leaves import PLAIN
from .rules import UNREAD


class KnownTexts:
    """Answers of text encoders, at most `max_bytes` of tensors in all; the one unused for longest leaves. 0: none."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._contents = Contents()
        self._answers: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._num_bytes = 0

    def keeps(self, call: ModelCall) -> bool:
        """Whether answers to such calls may be kept at all."""
        return self._max_bytes > 0 and call.site.stage == "encoding" and call.site.method == "forward"

    def question(self, call: ModelCall, state: Hashable) -> Hashable | None:
        """Equal for calls of the same model in the same `state` with the same bits; None for what is not kept."""
        if not self.keeps(call):
            return None
        try:
            return call.site, state, self._content(call.arguments)
        except TypeError:
            return None

    def get(self, question: Hashable) -> Any | None:
        """A copy, so that the asker may work in place."""
        if question is None or question not in self._answers:
            return None
        self._answers.move_to_end(question)
        return _copy(self._answers[question][0])

    def put(self, question: Hashable, answer: Any) -> None:
        """Keeps a copy. An answer that would take more than half of the room is not kept."""
        try:
            num_bytes = _num_bytes(answer)
        except TypeError:
            return
        if question is None or question in self._answers or 2 * num_bytes > self._max_bytes:
            return
        self._answers[question] = _copy(answer), num_bytes
        self._num_bytes += num_bytes
        while self._num_bytes > self._max_bytes:
            _, (_, freed) = self._answers.popitem(last=False)
            self._num_bytes -= freed

    def _content(self, value: Any) -> Hashable:
        """Raises TypeError for what cannot be compared."""
        if isinstance(value, torch.Tensor):
            return str(value.device), self._contents.digest(value)
        if isinstance(value, PLAIN):
            return type(value), value
        if isinstance(value, dict):
            return tuple((name, self._content(item)) for name, item in value.items())
        if isinstance(value, list | tuple):
            return type(value), tuple(self._content(item) for item in value)
        raise TypeError(f"a {type(value).__name__}")


def _num_bytes(answer: Any) -> int:
    """Of all tensors. Raises TypeError for an answer that holds something else than tensors and plain values."""
    if isinstance(answer, torch.Tensor):
        return answer.numel() * answer.element_size()
    if isinstance(answer, (*PLAIN, *UNREAD)):
        return 0
    if isinstance(answer, Mapping):
        return sum(map(_num_bytes, answer.values()))
    if isinstance(answer, list | tuple):
        return sum(map(_num_bytes, answer))
    raise TypeError(f"a {type(answer).__name__}")


def _copy(answer: Any) -> Any:
    if isinstance(answer, torch.Tensor):
        return answer.clone()
    if isinstance(answer, UNREAD):
        return None
    if isinstance(answer, Mapping):
        return type(answer)(**{str(name): _copy(item) for name, item in answer.items()})
    if isinstance(answer, list | tuple):
        return type(answer)(_copy(item) for item in answer)
    return answer
