"""LoRA files read and understood on a thread of their own: the device thread only puts the layers in.

diffusers loads an adapter in one call, which reads the file, translates its names and then makes layers. That call is
begun here, on a view of the pipeline, and left before the layers; with what it got to it is run again in full.
"""

import copy
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..config import EngineConfig
from .lora_files import PICKLED, lora_file, require_additive

log = logging.getLogger(__name__)


class _Read(BaseException):
    """Leaves diffusers' call once the file has been read. No Exception, so that no library keeps it."""


@dataclass(frozen=True, slots=True)
class ReadLora:
    """A file, and what diffusers' `lora_state_dict` made of it: weights on the host by name, and more."""

    file: Path
    state: Any


class LoraReader:
    """`begin` and `take` are the device thread's; `module` finds a module of the model by its path, None for none."""

    def __init__(self, pipeline: Any, config: EngineConfig, module: Callable[[str], Any]) -> None:
        self._pipeline = pipeline
        self._config = config
        self._module = module
        self._reads: dict[str, Future[ReadLora]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="safelight-lora")

    def begin(self, name: str) -> Future[ReadLora]:
        """Read it, unless that is under way or done."""
        if name not in self._reads:
            self._drop_unused()
            self._reads[name] = self._thread.submit(self._read, name)
        return self._reads[name]

    def _drop_unused(self) -> None:
        """Nobody came for them so far; they are read again if somebody does."""
        done = [name for name, read in self._reads.items() if read.done()]
        for name in done[: max(0, len(done) + 1 - self._config.max_loras)]:
            del self._reads[name]

    def take(self, name: str) -> ReadLora:
        """Wait until it is read, and forget it. Raises whatever kept it from being read."""
        read = self.begin(name)
        try:
            return read.result()
        finally:
            del self._reads[name]

    def close(self) -> None:
        """What is being read ends by itself."""
        self._reads.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self, name: str) -> ReadLora:
        file = lora_file(
            self._config.loras[name],
            allow_pickle=self._config.allow_pickle,
            local_files_only=self._config.local_files_only,
        )
        require_additive(file, self._module)
        found: list[Any] = []

        def read_and_leave(*args: Any, **kwargs: Any) -> None:
            found.append(self._pipeline.lora_state_dict(*args, **kwargs))
            raise _Read

        try:
            _load(self._pipeline, file, name, read_and_leave)
        except _Read:
            log.debug("read lora %s", file)
        return ReadLora(file, found[0])


def put_in(pipeline: Any, read: ReadLora, alias: str) -> None:
    """Make the layers. Device thread, out of inference mode."""
    state, *rest = read.state  # its call takes weights out of the dict
    _load(pipeline, read.file, alias, lambda *args, **kwargs: (dict(state), *rest))


def _load(pipeline: Any, file: Path, alias: str, lora_state_dict: Callable[..., Any]) -> None:
    """diffusers' own call, with another way to the weights of the file."""
    view = copy.copy(pipeline)
    vars(view)["lora_state_dict"] = lora_state_dict
    with torch.no_grad():
        view.load_lora_weights(
            str(file.parent),
            weight_name=file.name,
            adapter_name=alias,
            use_safetensors=None if file.suffix in PICKLED else True,
            local_files_only=True,
        )
