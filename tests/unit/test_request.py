"""Every limit of a request names its field; whatever passes survives the trip through the record."""

from __future__ import annotations

import contextlib
import json
import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.errors import InvalidRequest
from tasks.job_codec import encode_request
from tasks.request import MAX_METADATA_BYTES, MAX_SEED, GenerationRequest, parse_request
from tasks.submission import digest

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {"prompt": None}),
    ("prompt", {"prompt": ""}),
    ("prompt", {"prompt": "x" * 10_001}),
    ("prompt", {"prompt": "lone \ud800 surrogate"}),
    ("prompt", {"prompt": "a\0b"}),
    ("prompt", {"prompt": 7}),
    ("negative_prompt", {"negative_prompt": "x" * 10_001}),
    ("negative_prompt", {"negative_prompt": "\udfff"}),
    ("model", {"model": ""}),
    ("height", {"height": 0}),
    ("height", {"height": 20_000}),
    ("width", {"width": -8}),
    ("width", {"width": 96.5}),
    ("num_inference_steps", {"num_inference_steps": 0}),
    ("guidance_scale", {"guidance_scale": -0.1}),
    ("guidance_scale", {"guidance_scale": math.nan}),
    ("guidance_scale", {"guidance_scale": math.inf}),
    ("seed", {"seed": -1}),
    ("seed", {"seed": MAX_SEED + 1}),
    ("seed", {"seed": MAX_SEED, "num_outputs": 2}),
    ("num_outputs", {"num_outputs": 0}),
    ("num_outputs", {"num_outputs": 17}),
    ("image", {"image": "file:///etc/passwd"}),
    ("image", {"image": ""}),
    ("mask_image", {"mask_image": "ftp://x/y", "image": "s3://b/k"}),
    ("mask_image", {"mask_image": "s3://b/mask"}),
    ("strength", {"strength": 0.5}),
    ("strength", {"strength": 0, "image": "s3://b/k"}),
    ("strength", {"strength": 1.01, "image": "s3://b/k"}),
    ("num_frames", {"num_frames": 0}),
    ("fps", {"fps": 0}),
    ("duration_s", {"duration_s": 0}),
    ("noise_scheduler", {"noise_scheduler": ""}),
    ("loras", {"loras": [{"name": "a"}] * 17}),
    ("loras", {"loras": [0] * 100_000}),
    ("loras", {"loras": [{"name": "a"}, {"name": "a", "scale": 0.5}]}),
    ("loras.0.name", {"loras": [{"name": "../a"}]}),
    ("loras.1.scale", {"loras": [{"name": "a"}, {"name": "b", "scale": 5}]}),
    ("loras.0.weight", {"loras": [{"name": "a", "weight": 1}]}),
    ("output_format", {"output_format": "bmp"}),
    ("priority", {"priority": -1}),
    ("priority", {"priority": 10}),
    ("deadline_s", {"deadline_s": 0}),
    ("deadline_s", {"deadline_s": math.inf}),
    ("group", {"group": ""}),
    ("group", {"group": "x" * 129}),
    ("supersede", {"supersede": True}),
    ("webhook_url", {"webhook_url": "ftp://x"}),
    ("webhook_url", {"webhook_url": "https://x/\r\nHost: y"}),
    ("webhook_url", {"webhook_url": "https://" + "x" * 2_048}),
    ("webhook_url", {"webhook_url": "https://user:secret@x/"}),
    ("webhook_url", {"webhook_url": "https://good.example\\@x/"}),
    ("image", {"image": "https://user:secret@x/a.png"}),
    ("image", {"image": "https://x/a\r\nHost: y"}),
    ("image", {"image": "https://x/a b"}),
    ("image", {"image": "s3://b/k\n"}),
    ("image", {"image": "https://x/" + "a" * 8_192}),
    ("preview_every", {"preview_every": -1}),
    ("output_prefix", {"output_prefix": "/a"}),
    ("output_prefix", {"output_prefix": "a/../b"}),
    ("output_prefix", {"output_prefix": "/"}),
    ("output_prefix", {"output_prefix": "a\\b"}),
    ("output_prefix", {"output_prefix": "a\nb"}),
    ("output_prefix", {"output_prefix": "x" * 257}),
    ("output_prefix", {"output_prefix": "€" * 220}),
    *[
        ("output_prefix", {"output_prefix": prefix})
        for prefix in (
            *("..", ".", "./a", "a/..", "//etc", "a/%2e%2e/b", "%2E%2e", "%252e%252e/b", "a%2f..%2fb", "%2fetc"),
            *("a/‥/b", "．．/b", "a／..／b", "／etc", "..\\b", "a/%5c..", "a＼b", "a\x85b", "a\u2028b", "a\r\nX: y"),
        )
    ],
    *[
        (name, {name: value, "image": "s3://b/k"})
        for name in ("height", "seed", "num_outputs", "guidance_scale", "strength", "fps", "priority", "deadline_s")
        for value in (True, False)
    ],
    ("loras.0.scale", {"loras": [{"name": "a", "scale": True}]}),
    ("metadata", {"metadata": []}),
    ("metadata", {"metadata": {"x": "x" * MAX_METADATA_BYTES}}),
    ("metadata", {"metadata": {"x": math.nan}}),
    ("metadata", {"metadata": {"x": object()}}),
    ("metadata", {"metadata": {"x": "\ud800"}}),
    ("promt", {"promt": "a typing error"}),
]


@pytest.mark.parametrize(("field", "fields"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused_names_its_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request({"prompt": "x", **fields})
    assert caught.value.field == field
    assert caught.value.message
    assert "Value error" not in str(caught.value)


def test_a_missing_prompt_and_a_body_that_is_no_object() -> None:
    with pytest.raises(InvalidRequest, match=r"^prompt: "):
        parse_request({})
    with pytest.raises(InvalidRequest, match=r"^request: must be an object"):
        parse_request([1, 2])  # type: ignore[arg-type]


def test_metadata_may_be_deep_but_not_too_deep_to_be_read_again() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"a": [deep]} if len(deep) % 2 else {"a": deep}
    with pytest.raises(InvalidRequest, match="metadata: is nested deeper than 64 levels"):
        parse_request({"prompt": "x", "metadata": {"a": [[[[[deep]]]]]}})


def test_the_longest_prefix_survives() -> None:
    request = parse_request({"prompt": "x", "output_prefix": "x" * 256})
    assert GenerationRequest.model_validate_json(encode_request(request)) == request


def test_a_request_is_frozen() -> None:
    with pytest.raises(ValidationError):
        parse_request({"prompt": "x"}).prompt = "y"  # type: ignore[misc]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
NAME = st.text(string.ascii_letters + string.digits, min_size=1, max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
IMAGE_FIELDS = st.fixed_dictionaries(
    {"image": st.sampled_from(["s3://b/k ?#%", "https://h/x.png", "data:image/png;base64,AA=="])},
    optional={"mask_image": st.just("s3://b/m"), "strength": st.floats(0, 1, exclude_min=True)},
)
GROUP_FIELDS = st.fixed_dictionaries({"group": TEXT}, optional={"supersede": st.booleans()})
PLAIN_FIELDS = st.fixed_dictionaries(
    {"prompt": TEXT},
    optional={
        "negative_prompt": TEXT,
        "height": st.integers(8, 16_384),
        "width": st.integers(8, 16_384),
        "num_inference_steps": st.integers(1, 1000),
        "guidance_scale": st.floats(0, 100),
        "seed": st.integers(0, MAX_SEED - 16),
        "num_outputs": st.integers(1, 16),
        "fps": st.floats(0, 240, exclude_min=True),
        "loras": st.dictionaries(NAME, st.floats(-4, 4), max_size=3).map(
            lambda scales: [{"name": name, "scale": scale} for name, scale in scales.items()]
        ),
        "priority": st.integers(0, 9),
        "exact": st.booleans(),
        "output_prefix": st.lists(NAME, max_size=4).map("/".join),
        "metadata": st.dictionaries(TEXT, JSON, max_size=3),
    },
)
REQUESTS = st.tuples(PLAIN_FIELDS, st.just({}) | IMAGE_FIELDS, st.just({}) | GROUP_FIELDS).map(
    lambda parts: {**parts[0], **parts[1], **parts[2]}
)


@given(REQUESTS)
def test_what_is_accepted_survives_the_record(fields: dict[str, Any]) -> None:
    request = parse_request(fields)
    assert GenerationRequest.model_validate_json(encode_request(request)) == request
    assert parse_request(json.loads(json.dumps(request.model_dump(mode="json")))) == request


@given(REQUESTS)
def test_a_digest_is_of_the_body_however_it_came(fields: dict[str, Any]) -> None:
    shuffled = dict(reversed(list(json.loads(json.dumps(fields)).items())))
    assert digest(parse_request(fields)) == digest(parse_request(shuffled))
    assert digest(parse_request(fields)) != digest(parse_request({**fields, "prompt": fields["prompt"] + "!"}))


@given(st.dictionaries(st.sampled_from([*GenerationRequest.model_fields, "other", ""]) | TEXT, JSON, max_size=4))
def test_nothing_else_than_a_refusal_ever_comes_out(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequest):
        assert isinstance(parse_request(fields), GenerationRequest)


@pytest.mark.parametrize("prefix", ["a/b", "a/b/", "a//b", "a/b//"])
def test_a_prefix_is_a_folder_however_its_slashes_are_set(prefix: str) -> None:
    assert parse_request({"prompt": "x", "output_prefix": prefix}).output_prefix == "a/b/"


@pytest.mark.parametrize("prefix", ["2026/été", "a.b/..c/d..", "50%", "a%20b", "日本/…", "x" * 256])
def test_unusual_prefixes_that_climb_nowhere_are_taken(prefix: str) -> None:
    assert parse_request({"prompt": "x", "output_prefix": prefix}).output_prefix == f"{prefix}/"


def test_what_a_url_holds_is_not_shown_by_repr() -> None:
    request = parse_request(
        {"prompt": "x", "image": "https://h/a?X-Amz-Signature=secret", "webhook_url": "https://h/secret"}
    )
    assert "secret" not in repr(request) + str(request)


def test_a_refusal_is_short_whatever_was_sent() -> None:
    for fields in ({"y" * 1_000_000: 1}, {"loras": [{"z" * 1_000_000: 1}]}, {"model": "m" * 1_000_000}):
        with pytest.raises(InvalidRequest) as caught:
            parse_request({"prompt": "x", **fields})
        assert len(str(caught.value)) < 1_500
