"""The job as data: its states, its times, its ids, and the pure parts around it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import InvalidRequest
from tasks.eta import Load, Speed
from tasks.ids import is_job_id, new_job_id
from tasks.job import TERMINAL, TRANSITIONS, Job, JobStatus, rfc3339
from tasks.job_codec import Snapshot, decode_job, encode_request
from tasks.models import load_models
from tasks.request import parse_request
from tasks.submission import new_job

MODELS = load_models(None)
LOAD, UNMEASURED = Load(position=4, queued=5, work=50), (Speed(max_rows=1), Speed(max_rows=1))


def test_terminal_states_are_those_without_a_way_out() -> None:
    assert {status for status in JobStatus if not TRANSITIONS[status]} == TERMINAL
    assert all(status.is_terminal == (status in TERMINAL) for status in JobStatus)
    assert set(TRANSITIONS) == set(JobStatus)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00.000Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 1999, tzinfo=timezone(timedelta(hours=2))), "2026-01-31T10:00:00.001Z"),
    ],
)
def test_times_are_utc_with_milliseconds(moment: datetime, text: str) -> None:
    assert rfc3339(moment) == text


def test_a_job_reads_back_from_its_own_json() -> None:
    record = {"request": encode_request(parse_request({"prompt": "x"})), "status": "queued", "attempt": "0"}
    snapshot = Snapshot("a", {**record, "created": "1700000000123"}, 1_700_000_000_500, LOAD, 2.0, 1, UNMEASURED)
    job = decode_job(snapshot)
    assert (job.progress.queue_position, job.progress.eta_s) == (4, 6.0)  # by the average attempt: no step is measured
    assert job.to_json()["created_at"] == "2023-11-14T22:13:20.123Z"
    assert Job.model_validate(job.to_json()) == job


def test_no_result_is_promised_of_a_job_whose_end_is_wanted() -> None:
    record = {"request": encode_request(parse_request({"prompt": "x"})), "status": "queued", "attempt": "0"}
    snapshot = Snapshot("a", record | {"created": "1"}, 500, LOAD, 2.0, 1, UNMEASURED, abort_wanted=True)
    job = decode_job(snapshot)
    assert (job.abort_requested, job.progress.eta_s) == (True, None)


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_ids_sort_by_time(first: int, second: int) -> None:
    one, other = new_job_id(first), new_job_id(second)
    assert is_job_id(one)
    assert len(one) == 26
    if first != second:
        assert (one < other) == (first < second)


def test_ids_do_not_repeat() -> None:
    assert len({new_job_id(1) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("job_id", ["", "x" * 65, "a b", "a/b", "a\n", "é", "a:b", "١"])
def test_other_alphabets_are_refused(job_id: str) -> None:
    assert not is_job_id(job_id)
    with pytest.raises(InvalidRequest, match=r"^job_id: "):
        new_job({"prompt": "x"}, MODELS, job_id=job_id)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb"])
def test_idempotency_keys_are_bounded(key: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^idempotency_key: "):
        new_job({"prompt": "x"}, MODELS, idempotency_key=key)
