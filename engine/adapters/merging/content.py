"""Tensors compared by what is in them: for tables that must be equal in all calls of one forward."""

import hashlib

import torch
from torch.utils.weak import WeakTensorKeyDictionary


class Contents:
    """Digests of tensors, each computed once for as long as the tensor object lives."""

    def __init__(self) -> None:
        self._digests = WeakTensorKeyDictionary()

    def digest(self, tensor: torch.Tensor) -> bytes:
        """16 bytes; equal for equal dtype, shape and bits."""
        known: bytes | None = self._digests.get(tensor)  # type: ignore[no-untyped-call]
        if known is None:
            flat = tensor.detach().reshape(-1).contiguous().view(torch.uint8)
            text = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
            known = hashlib.blake2b(text + flat.cpu().numpy().tobytes(), digest_size=16).digest()
            self._digests[tensor] = known
        return known
