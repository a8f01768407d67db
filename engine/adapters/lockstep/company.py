"""The leader's side: starts the followers, divides the denoisers with them, and takes them along in every forward."""

from __future__ import annotations

import functools
import logging
import subprocess  # nosec B404 # see engine.executors.spawn
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...config import EngineConfig
from ...errors import DeviceLost, ModelLoadError
from ...executors.channel import Channel
from ...executors.spawn import spawned
from .cargo import bits, stow
from .spread import join, spread

log = logging.getLogger(__name__)

FOLLOWER = "engine.adapters.lockstep.follower"
_GRACE_S = 5.0


class Follower:
    """One process of the company, at the other end of `channel`."""

    def __init__(self, config: EngineConfig, rank: int, store: str) -> None:
        self.device = config.devices[rank]
        self.process, end = spawned(FOLLOWER, {})
        self.channel = Channel(end)
        self.channel.post(("muster", config, rank, store))


class Company:
    """Device thread only. The followers start at once and load while the leader does."""

    def __init__(self, config: EngineConfig) -> None:
        assert config.parallel is not None
        self._kind = config.parallel
        self._world = len(config.devices)
        self._timeout_s = config.wave_deadline_s
        self._home = tempfile.TemporaryDirectory(prefix="safelight-company-")
        self._store = str(Path(self._home.name) / "store")
        self._has_joined = self._broken = False
        self._followers: list[Follower] = []
        try:
            for rank in range(1, self._world):
                self._followers.append(Follower(config, rank, self._store))
        except BaseException:
            self.close()
            raise

    def lead(self, denoisers: Mapping[str, torch.nn.Module], device: torch.device) -> None:
        """Divide these models, and take all followers along in each of their forwards. Raises ModelLoadError."""
        try:
            if dist.is_initialized():
                raise RuntimeError("this process is a part of another company already")
            for follower in self._followers:
                self._hear(follower)
            join(device, 0, self._world, self._store, self._timeout_s)
            self._has_joined = True
            for name, model in denoisers.items():
                spread(model, self._kind, device, self._world)
                vars(model)["forward"] = self._together(name, model.forward, device)
            for follower in self._followers:
                self._hear(follower)
        except Exception as error:
            raise ModelLoadError(f"parallel = {self._kind!r}: {error}") from error
        log.info("%s are divided among %d devices: %s", ", ".join(denoisers), self._world, self._kind)

    def require_whole(self) -> None:
        """Raises DeviceLost if a forward failed half way or a follower has ended: nobody can catch up again."""
        ended = [one.device for one in self._followers if one.process.poll() is not None]
        if ended or self._broken:
            raise DeviceLost(f"the company of {self._world} devices is broken" + f"; ended: {ended}" * bool(ended))

    def close(self) -> None:
        """No follower is left. Idempotent."""
        for follower in self._followers:
            follower.channel.close()  # the end of its life
        for follower in self._followers:
            with suppress(subprocess.TimeoutExpired):
                follower.process.wait(_GRACE_S)
            follower.process.kill()
            follower.process.wait()
        self._followers = []
        if self._has_joined:
            self._has_joined = False
            dist.destroy_process_group()
        self._home.cleanup()

    def _hear(self, follower: Follower) -> None:
        try:
            said = follower.channel.receive()
        except EOFError:
            raise RuntimeError(f"the follower on {follower.device} has ended") from None
        if said != "ready":
            raise RuntimeError(f"the follower on {follower.device}: {said}")

    def _together(self, name: str, forward: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
        @functools.wraps(forward)
        def all_forward(*args: Any, **kwargs: Any) -> Any:
            self.require_whole()
            tensors: list[torch.Tensor] = []
            plan = stow((args, kwargs), tensors)
            for follower in self._followers:
                follower.channel.post(("forward", name, plan))
            try:
                for tensor in tensors:
                    dist.broadcast(bits(tensor.to(device).contiguous()), 0)
                return forward(*args, **kwargs)
            except BaseException:
                self._broken = True
                raise

        return all_forward
