"""A torch profile of whatever the device thread does between start and stop."""

import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

DIRECTORY_VARIABLE = "SAFELIGHT_PROFILE_DIR"


class Profiler:
    """At most one profile at a time; traces go to SAFELIGHT_PROFILE_DIR, else to the working directory."""

    def __init__(self) -> None:
        self._profile: profile | None = None
        self._path = Path()

    def start(self, prefix: str) -> None:
        """Raises RuntimeError while another profile runs."""
        if self._profile is not None:
            raise RuntimeError("a profile is running already")
        self._path = Path(os.environ.get(DIRECTORY_VARIABLE, ".")) / f"{prefix}.json"
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        running = profile(activities=activities)
        running.start()
        self._profile = running

    def stop(self) -> str:
        """Write the Chrome trace and return its path. Raises RuntimeError when none runs."""
        if self._profile is None:
            raise RuntimeError("no profile is running")
        running, self._profile = self._profile, None
        running.stop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        running.export_chrome_trace(str(self._path))
        return str(self._path)
