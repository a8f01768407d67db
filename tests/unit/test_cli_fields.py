"""The options of `submit` are the fields of a request, no more and no less, and nothing that was given gets lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.cli.fields import FIELD_OPTIONS, given_fields
from tasks.errors import InvalidRequest
from tasks.request import GenerationRequest, parse_request


def test_every_field_has_an_option() -> None:
    assert {option.field for option in FIELD_OPTIONS} == set(GenerationRequest.model_fields) - {"prompt"}


def test_what_was_not_given_is_not_sent() -> None:
    options = {option.field: None for option in FIELD_OPTIONS} | {"exact": False, "loras": []}
    assert given_fields(options) == {}


def test_zero_is_a_value() -> None:
    assert given_fields({"seed": 0, "guidance_scale": 0.0, "height": None}) == {"seed": 0, "guidance_scale": 0.0}


def test_adapters_with_and_without_scale() -> None:
    given = given_fields({"loras": ["ink", "oil:0.5"]})
    request = parse_request({"prompt": "x", **given})
    assert [(lora.name, lora.scale) for lora in request.loras] == [("ink", 1.0), ("oil", 0.5)]


def test_a_local_file_goes_along(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    assert given_fields({"image": str(tmp_path / "dot.png")}) == {"image": "data:image/png;base64,iVBORw=="}


def test_a_uri_stays() -> None:
    assert given_fields({"image": "s3://bucket/key"}) == {"image": "s3://bucket/key"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"image": "/no/such/file.png"}, "image"),
        ({"mask_image": "/"}, "mask_image"),
        ({"metadata": "{"}, "metadata"),
        ({"metadata": "[1]"}, "metadata"),
        ({"loras": ["a", "b:much"]}, "loras.1.scale"),
    ],
)
def test_a_bad_value_names_its_field(options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        given_fields(options)
    assert caught.value.field == field
