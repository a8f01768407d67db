"""A worker is asked to leave by its name, as an operator, a pod's hook and Celery's own remote control do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tasks.settings import Settings
from tests.e2e.nodes import Fleet, environment, eventually, fleet
from tests.e2e.test_resume import last_steps_told
from tests.e2e.test_worker import ended


def command(running: Fleet, words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """By a shell, as a preStop hook runs it."""
    env = {**os.environ, **environment(running.settings), **variables}
    safelight = f"{sys.executable} -m tasks.cli"
    script = words.replace("safelight ", f"{safelight} ", 1)
    return subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, text=True, timeout=60)


def test_drain_wait_under_load_loses_nothing_and_the_next_of_that_name_stays(
    settings: Settings, tmp_path: Path
) -> None:
    with fleet(settings, tmp_path / "n", fake="step_ms=40", mode="step", drain_grace_s=0.5) as running:
        first = running.start_worker("pod-1")
        long = [running.submit("long", seed=n, num_inference_steps=1000) for n in range(4)]
        short = [running.submit("short", seed=n) for n in range(12)]
        for job in long:
            running.wait_step(job, 5)
        said = command(running, "safelight drain $HOSTNAME --wait", HOSTNAME="pod-1")
        assert said.returncode == 0, said.stderr
        asked, gone = said.stdout.splitlines()
        assert asked.startswith("pod-1:") and asked.endswith("asked to drain")
        assert gone == f"{asked.split()[0]}  gone"
        assert "draining" in said.stderr
        eventually(lambda: first.returncode is not None, 10, "the process ends")
        assert first.returncode == 0
        left = [running.client.get(job.id) for job in long]
        assert {(job.status, job.attempt, job.errors) for job in left} == {("queued", 1, ())}

        late = command(running, "safelight drain pod-1")
        assert (late.returncode, late.stdout) == (1, "")
        assert "no live worker 'pod-1'" in late.stderr

        second = running.start_worker("pod-1")
        for job in long:
            running.wait_step(job, 6)
            assert min(last_steps_told(running, job)) >= 5, "it goes on where it was"
        for job in long[1:]:
            running.client.abort(job.id)
        assert {job.status for job in ended(running, short)} == {"succeeded"}
        assert {job.attempt for job in ended(running, short)} <= {1, 2}
        assert second.returncode is None, "the wish was for the process before"

        from tasks.app import make_app

        answers = make_app(running.settings).control.broadcast("shutdown", reply=True, timeout=15, limit=1)
        assert [list(answer.values()) for answer in answers] == [[{"ok": "draining"}]]
        eventually(lambda: second.returncode is not None, 20, "Celery's shutdown drains, too")
        assert second.returncode == 0
        back = running.client.get(long[0].id)
        assert (back.status, back.attempt, back.errors) == ("queued", 2, ())
        assert running.client.store.workers() == []


def test_drain_names_those_that_are_up(settings: Settings, tmp_path: Path) -> None:
    with fleet(settings, tmp_path / "n") as running:
        running.client.store.beat("gpu-1:7:ab", {"name": "gpu-1:7:ab", "state": "ready", "jobs": 2}, 60)
        said = command(running, "safelight drain nobody gpu-1 --wait --timeout 0.5 --json")
        assert said.returncode == 1
        assert "no live worker 'nobody'; live are: gpu-1:7:ab" in said.stderr
        assert [json.loads(line) for line in said.stdout.splitlines()] == [
            {"worker": "gpu-1:7:ab", "state": "asked"},
            {"worker": "gpu-1:7:ab", "state": "ready", "jobs": 2},
        ]
        assert running.client.store.beat("gpu-1:7:ab", {}, 60)
