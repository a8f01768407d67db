"""The worker's process takes short turns at the interpreter, from before it has other threads."""

from __future__ import annotations

import sys

import pytest

from worker.__main__ import main
from worker.turns import SWITCH_S


def test_the_worker_takes_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_LEASE_S", "0")  # it goes no further than that
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        assert main([]) == 2
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(before)
