"""Tensors compared by what is in them: for tables that must be equal in all calls of one forward."""

import hashlib
from collections.abc import Hashable
from weakref import WeakValueDictionary

import torch
from torch.utils.weak import WeakTensorKeyDictionary


class CallKey:
    """Equal for equal parts. They are long, and looked at for every row and forward: so they are hashed once."""

    __slots__ = ("__weakref__", "_hash", "_parts")

    def __init__(self, parts: Hashable) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, CallKey) and self._hash == other._hash and self._parts == other._parts
        )


class Contents:
    """Digests of tensors, each computed once for as long as the tensor object lives; and one key object a key."""

    def __init__(self) -> None:
        self._digests = WeakTensorKeyDictionary()
        self._keys: WeakValueDictionary[Hashable, CallKey] = WeakValueDictionary()

    def key(self, parts: Hashable) -> CallKey:
        """The very same object for equal parts, as long as somebody has it."""
        known = self._keys.get(parts)
        if known is None:
            self._keys[parts] = known = CallKey(parts)
        return known

    def digest(self, tensor: torch.Tensor) -> bytes:
        """16 bytes; equal for equal dtype, shape and bits."""
        known: bytes | None = self._digests.get(tensor)  # type: ignore[no-untyped-call]
        if known is None:
            flat = tensor.detach().reshape(-1).contiguous().view(torch.uint8)
            text = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
            known = hashlib.blake2b(text + flat.cpu().numpy().tobytes(), digest_size=16).digest()
            self._digests[tensor] = known
        return known
