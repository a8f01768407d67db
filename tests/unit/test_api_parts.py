"""The small parts of the API by themselves: keys, resume points, the page's policy, labels of metrics, our errors."""

from __future__ import annotations

import hashlib
import json

import pytest
from pydantic import SecretStr

from api_stub.auth import DEFAULT_TENANT, Keys
from api_stub.events import frame, resume_point
from api_stub.metrics import Metrics
from api_stub.problems import as_problem
from api_stub.system import public_model
from api_stub.web import page_headers
from tasks.errors import (
    ConfigError,
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    RateLimited,
    SafelightError,
    StoreFull,
    StoreUnavailable,
    UnknownJob,
)
from tasks.models import BUNDLED
from tasks.settings import Settings
from tasks.store import QueueStats, Totals
from tasks.tally import Tally


def test_keys() -> None:
    keys = Keys(SecretStr("one, zwei-ü ,"))
    assert keys.needed
    assert keys.tenant("one") == DEFAULT_TENANT
    assert keys.tenant("zwei-ü".encode().decode("latin-1")), "a header arrives decoded as Latin-1"
    for wrong in ("", "two", "one,", "on", "One", "ü"):
        assert keys.tenant(wrong) is None
    assert not Keys(None).needed
    for nothing in (",", " , ", " "):
        with pytest.raises(ConfigError, match="has no key in it"):
            Keys(SecretStr(nothing))


def test_a_key_has_a_name_and_a_name_may_have_two_keys_while_one_is_replaced() -> None:
    keys = Keys(SecretStr("web:old, web:new,mobile:a:b,plain"))
    assert [keys.tenant(key) for key in ("old", "new", "a:b", "plain")] == ["web", "web", "mobile", DEFAULT_TENANT]
    for wrong in ("web", "web:old", "mobile", "a", "b", ""):
        assert keys.tenant(wrong) is None


def test_a_key_may_be_given_as_its_digest() -> None:
    digest = hashlib.sha256(b"KEY").hexdigest()
    keys = Keys(SecretStr(f"web:sha256:{digest},sha256:{digest.upper()[::-1]}"))
    assert keys.tenant("KEY") == "web"
    assert keys.tenant(digest) is keys.tenant(f"sha256:{digest}") is None, "the digest itself opens nothing"


@pytest.mark.parametrize(
    "wrong", ["we b:hidden", ":hidden", "ü:hidden", "web:", "web:sha256:hidden", "sha256:", "x" * 65 + ":k"]
)
def test_a_wrong_entry_is_told_by_its_place(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^SAFELIGHT_API_KEYS: entry 2: ") as caught:
        Keys(SecretStr(f"first,{wrong}"))
    assert "hidden" not in str(caught.value)


def test_keys_are_compared_in_constant_time_and_kept_as_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    keys = Keys(SecretStr("first-key,second-key"))
    monkeypatch.setattr("hmac.compare_digest", compare)
    for token in ("first-key", "other", "x" * 10_000):
        keys.tenant(token)
    assert len(compared) == 6, "every key is compared, also after a match"
    assert {len(part) for pair in compared for part in pair} == {32}, "no length shows"
    assert "first-key" not in str(vars(keys))


@pytest.mark.parametrize("given", ["1700000000000-0", "12", "0-1", f"{2**64 - 1}-0"])
def test_resume_points(given: str) -> None:
    assert resume_point(given) == given


@pytest.mark.parametrize("given", ["$", "+", "-", "1-", "1-2-3", "x", "-1", f"{2**64}-0", "9" * 400, "٣", "1 0"])
def test_what_no_event_carried_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="Last-Event-ID"):
        resume_point(given)


def test_without_a_point_it_begins_at_the_start() -> None:
    assert resume_point(None) == resume_point("") == "0"


def test_a_frame_is_one_line_of_data() -> None:
    text = frame("7-0", "progress", {"text": "a\nb\u2028"})
    assert text == 'id: 7-0\nevent: progress\ndata: {"text":"a\\nb\\u2028"}\n\n'


@pytest.mark.parametrize(
    ("endpoint", "public", "expected"),
    [
        ("http://s3:8333", "https://media.example.org/base", "https://media.example.org"),
        ("http://127.0.0.1:8333/", None, "http://127.0.0.1:8333"),
        ("http://[::1]:8333", None, "http://[::1]:8333"),
        (None, None, "https://*.amazonaws.com"),
    ],
)
def test_the_page_may_show_pictures_of_the_store_and_run_nothing_else(
    endpoint: str | None, public: str | None, expected: str
) -> None:
    headers = page_headers(Settings(s3_endpoint_url=endpoint, s3_public_endpoint_url=public))
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["img-src"].split() == ["'self'", "data:", "blob:", expected]
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


def test_an_endpoint_cannot_add_to_the_policy() -> None:
    headers = page_headers(Settings(s3_public_endpoint_url="http://a; script-src *"))
    assert "script-src *" not in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (InvalidRequest("seed", "no"), 422, None),
        (InvalidRequest("image", "no", error_type="invalid_image"), 422, None),
        (UnknownJob("a"), 404, None),
        (IdempotencyConflict("other body"), 409, None),
        (QueueFull(10, 4.2), 429, "5"),
        (RateLimited("9/hour", 0.2), 429, "1"),
        (StoreUnavailable("away"), 503, "2"),
        (StoreFull("full"), 503, "30"),
        (SafelightError("?"), 500, None),
    ],
)
def test_our_errors_as_problems(error: SafelightError, status: int, retry_after: str | None) -> None:
    problem = as_problem(error)
    assert problem.problem.status == status
    assert problem.headers.get("Retry-After") == retry_after


def test_figures_of_a_lost_store_vanish() -> None:
    metrics = Metrics()
    totals = Totals(Tally({"tiny created": 4}), webhooks_waiting=0, webhooks_dead=0, dead_letters=0)
    metrics.set_store([QueueStats("tiny", 3, 1, 2.5)], totals, [])
    assert 'safelight_jobs_created_total{model="tiny"} 4.0' in metrics.text().decode()
    assert 'safelight_jobs{model="tiny",status="queued"} 3.0' in metrics.text().decode()
    metrics.set_store_down()
    text = metrics.text().decode()
    assert "safelight_store_up 0.0" in text
    assert 'model="tiny"' not in text


def test_a_public_model_hides_where_its_weights_are() -> None:
    spec = BUNDLED.model_copy(update={"loras": {"ink": "/secret/ink.safetensors"}})
    shown = json.dumps(public_model(spec))
    assert "secret" not in shown
    assert "bundled:" not in shown
    assert public_model(spec)["loras"] == ["ink"]
