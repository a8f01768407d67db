"""Why a job waits, for each reason that there is."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.explain import Explanation, explain, lines
from tasks.job import Batching, JobMetrics, JobStatus, Progress
from tasks.quotas import Quotas, Share
from tasks.store import Outcome
from tests.contract.stores import Lab, beat_of, failed, memory_lab, model_error

SIZE = {"height": 96, "width": 96, "num_frames": None, "loras": [], "guided": True}


@pytest.fixture
def lab() -> Lab:
    return memory_lab()


def of(lab: Lab, job_id: str) -> Explanation:
    return explain(lab.store.explain(job_id))


def codes(lab: Lab, job_id: str) -> list[str]:
    return [reason.code for reason in of(lab, job_id).reasons]


def beat(
    lab: Lab,
    name: str = "w",
    state: str = "ready",
    model: str = "tiny",
    place: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    info = beat_of(model, max_rows=2, step_s=0.1, **more.pop("speed", {}))
    info["models"][model] |= more | (place or {})
    lab.store.beat(name, {**info, "name": name, "state": state}, ttl_s=60)


def test_nobody_is_there(lab: Lab) -> None:
    job_id = lab.create()
    assert codes(lab, job_id) == ["no_worker"]
    beat(lab, "other", model="other")
    assert codes(lab, job_id) == ["model_not_served"]
    beat(lab, "leaving", "draining")
    assert codes(lab, job_id) == ["worker_draining"]
    beat(lab, "loading", "starting")
    assert codes(lab, job_id) == ["worker_starting"]
    assert of(lab, job_id).eta_s is None
    assert "nobody can tell yet" in "\n".join(lines(of(lab, job_id)))


def test_a_limit_of_its_own_is_named() -> None:
    lab = memory_lab(quotas=Quotas(default=Share(max_running_rows=1)))
    lab.running()
    job_id = lab.create()
    beat(lab)
    assert codes(lab, job_id) == ["at_limit"]
    assert "tenant default may run 1 outputs" in of(lab, job_id).reasons[0].message


def test_a_place_in_the_queue(lab: Lab) -> None:
    first, second = lab.create(num_inference_steps=10), lab.create(num_inference_steps=10)
    beat(lab)
    assert codes(lab, first) == ["message_under_way"]
    assert codes(lab, second) == ["jobs_ahead"]
    beat(lab, speed={"busy_rows": 3, "left": 30, "rows": 2.0})
    assert codes(lab, first) == ["rows_busy"]
    assert codes(lab, second) == ["jobs_ahead", "rows_busy"]
    told = of(lab, second)
    assert (told.queue_position, told.eta_s) == (1, (30 + 10 + 10) / 20)
    assert "about 2.5 s" in "\n".join(lines(told))


def test_a_running_job_that_has_not_begun(lab: Lab) -> None:
    beat(lab)
    job_id, attempt = lab.running()
    lab.store.report({(job_id, attempt): Progress(stage="loading")})
    assert codes(lab, job_id) == ["waits_for_batch"]
    lab.store.report({(job_id, attempt): Progress(stage="denoising", step=3, num_steps=20, fraction=0.2)})
    assert codes(lab, job_id) == []
    lab.store.abort(job_id)
    assert codes(lab, job_id) == ["abort_wanted"]


def test_a_worker_that_says_nothing_any_more(lab: Lab) -> None:
    job_id, attempt = lab.running()
    worker = lab.store.get(job_id).worker
    assert worker is not None
    lab.store.report({(job_id, attempt): Progress(stage="denoising", step=3, num_steps=20, fraction=0.2)})
    lab.store.beat(worker, {"name": worker, "ttl_s": 8.0}, ttl_s=8)
    assert codes(lab, job_id) == []
    lab.clock.advance(6)
    [reason] = of(lab, job_id).reasons
    assert reason.code == "worker_silent" and f"worker {worker} for 6 s" in reason.message


def test_quarantine_and_exact_and_what_went_before(lab: Lab) -> None:
    beat(lab)
    exact = lab.create(exact=True)
    assert "runs_alone" in codes(lab, exact)
    lab.store.abort(exact)
    job_id = lab.create()
    lab.crash(job_id)
    beat(lab)
    assert codes(lab, job_id) == ["message_under_way", "after_failure"]
    lab.crash(job_id)
    beat(lab)
    assert codes(lab, job_id) == ["message_under_way", "quarantined", "after_failure"]
    told = of(lab, job_id)
    assert (told.attempts, told.crashes) == (2, 2)


@pytest.mark.parametrize(
    ("key", "wish", "differs"),
    [
        (SIZE, {}, ()),
        (SIZE, {"height": 128, "num_inference_steps": 7}, ("height",)),
        (SIZE, {"guidance_scale": 1.0}, ("guidance_scale",)),
        (SIZE | {"loras": [["ink", 1.0]]}, {}, ("loras",)),
        ({"height": 96, "num_inference_steps": 20, "noise_scheduler": "ddim"}, {}, ()),
        ({"height": 96, "num_inference_steps": 20}, {"num_inference_steps": 7}, ("num_inference_steps",)),
        ({"noise_scheduler": "ddim"}, {"noise_scheduler": "euler"}, ("noise_scheduler",)),
        ({"parameter_of_a_later_version": 1}, {}, ()),
    ],
)
def test_what_differs_from_what_runs(
    lab: Lab, key: dict[str, Any], wish: dict[str, Any], differs: tuple[str, ...]
) -> None:
    beat(lab, running=[{"rows": 2, "key": key}])
    job_id = lab.create(**wish)
    told = of(lab, job_id)
    assert [(group.worker, group.rows, group.differs_in) for group in told.running] == [("w", 2, differs)]
    assert ("differs" in codes(lab, job_id)) == bool(differs)
    beat(lab, running=[{"rows": 2, "key": key}, {"rows": 1, "key": {}}])
    assert "differs" not in codes(lab, job_id), "it could share with the other group"


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        ({"state": "out"}, "model_out", "waits until another model there has had its turn"),
        ({"state": "loading"}, "model_loading", "is loading model tiny"),
        ({"state": "failed", "trouble": "no such file"}, "model_not_loaded", "no such file"),
        ({"state": "loaded"}, "message_under_way", "about to take it"),
    ],
)
def test_a_model_that_is_not_in_memory(lab: Lab, place: dict[str, Any], code: str, words: str) -> None:
    beat(lab, place=place)
    told = of(lab, lab.create())
    assert (told.reasons[0].code, words in told.reasons[0].message) == (code, True)


def test_ends(lab: Lab) -> None:
    metrics = JobMetrics(denoise_ms=5, total_ms=9, device_seconds=0.25)
    job_id, attempt = lab.running()
    company = Batching(mode="step", rows_mean=1.5, rows_max=2, apart=("height",), mates=("m1", "m2"))
    outcome = Outcome(JobStatus.ABORTED, warnings=("alpha flattened",), metrics=metrics, batching=company)
    lab.store.finish(job_id, attempt, outcome)
    told = of(lab, job_id)
    assert codes(lab, job_id) == ["ended", "differs"]
    assert (told.batching, told.device_seconds, told.changed) == (company, 0.25, ("alpha flattened",))
    text = "\n".join(lines(told))
    assert "0.250 device seconds" in text and "alpha flattened" in text
    assert "1.5 rows on average, 2 at most, its own among them" in text
    assert "with m1, m2" in text
    assert text.count("aborted") == 1
    other, attempt = lab.running()
    lab.store.finish(other, attempt, failed(model_error("no luck")))
    assert "no luck" in of(lab, other).reasons[0].message
    assert "no luck" in "\n".join(lines(of(lab, other)))
    assert Explanation.model_validate(of(lab, other).to_json()) == of(lab, other)
