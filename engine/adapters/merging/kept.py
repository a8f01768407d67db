"""Merged arguments that stay the same from step to step: kept while the same rows are merged in the same order."""

import weakref
from collections.abc import Sequence

import torch

#: groups that take turns at a model
MAX_KEPT = 4


class Kept:
    """By argument, the last merged tensors. One goes as soon as a tensor of which it was made does."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[tuple[weakref.ref[torch.Tensor], ...], torch.Tensor]]] = {}

    def get(self, name: str, parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """What was made of these very objects."""
        for sources, merged in self._known.get(name, ()):
            if len(sources) == len(parts) and all(ref() is part for ref, part in zip(sources, parts, strict=True)):
                return merged
        return None

    def put(self, name: str, parts: Sequence[torch.Tensor], merged: torch.Tensor) -> torch.Tensor:
        known = self._known.setdefault(name, [])

        def forget(_: object) -> None:
            known[:] = [entry for entry in known if all(ref() is not None for ref in entry[0])]

        known.insert(0, (tuple(weakref.ref(part, forget) for part in parts), merged))
        del known[MAX_KEPT:]
        return merged

    def clear(self) -> None:
        self._known.clear()
