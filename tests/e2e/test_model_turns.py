"""Two models and room for one, through a real worker process: both are served, each job by its own model."""

from __future__ import annotations

from pathlib import Path

from tasks.settings import Settings
from tests.e2e.nodes import eventually, fleet

MODELS = """
[near]
source = "fake:step_ms=20,load_ms=150"
memory_mb = 60
max_batch_rows = 2
limits = { min_size = 8, max_size = 64 }
defaults = { height = 16, width = 16, num_inference_steps = 4 }

[far]
source = "fake:step_ms=20,load_ms=600"
memory_mb = 60
max_batch_rows = 2
limits = { min_size = 8, max_size = 64 }
defaults = { height = 16, width = 16, num_inference_steps = 4 }
"""


def test_models_that_do_not_fit_take_turns(settings: Settings, tmp_path: Path) -> None:
    bound = {"model_memory_mb": 100, "model_turn_s": 1.0}
    with fleet(settings, tmp_path / "n", models_text=MODELS, **bound) as running:
        client = running.client

        def states() -> list[str]:
            (worker,) = client.store.workers()
            return [worker["models"][name].get("state") for name in ("near", "far")]

        running.start_worker()
        eventually(lambda: states() == ["loaded", "out"], 20, "the first is loaded, the second has no room")
        near = [running.submit(model="near", num_inference_steps=12).id for _ in range(12)]
        far = [running.submit(model="far").id for _ in range(4)]
        eventually(lambda: client.get(far[0]).progress.detail == "loading model far", 20, "its job says why it waits")
        waiting = client.get(far[0])
        assert (waiting.status, waiting.progress.stage) == ("running", "loading")
        jobs = [client.wait(job_id, timeout_s=40) for job_id in (*near, *far)]
        assert {(job.status, job.attempt) for job in jobs} == {("succeeded", 1)}
        assert all(job.progress.detail is None for job in jobs)
        eventually(lambda: sorted(states()) == ["loaded", "out"], 20, "never both")
