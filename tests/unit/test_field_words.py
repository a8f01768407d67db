"""A name that is no field: the words of other systems and slips of the pen lead to the right one, others to nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.errors import InvalidRequest
from tasks.field_words import _ELSEWHERE, _LORA_SYNONYMS, _SYNONYMS
from tasks.request import FIELD_WORDS, GenerationRequest, LoraRequest, parse_request


def refusal(**fields: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        parse_request({"prompt": "a boat", **fields})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("steps", "num_inference_steps"),
        ("cfg", "guidance_scale"),
        ("cfg_scale", "guidance_scale"),
        ("guidance", "guidance_scale"),
        ("n", "num_outputs"),
        ("num_images", "num_outputs"),
        ("size", "width and height"),
        ("image_size", "width and height"),
        ("sampler_name", "noise_scheduler"),
        ("denoising_strength", "strength"),
        ("init_images", "image"),
        ("mask", "mask_image"),
        ("numInferenceSteps", "num_inference_steps"),
        ("negative-prompt", "negative_prompt"),
        ("num_output", "num_outputs"),
        ("guidence_scale", "guidance_scale"),
        ("heigth", "height"),
        ("webhook", "webhook_url"),
    ],
)
def test_what_was_meant(name: str, meant: str) -> None:
    assert refusal(**{name: 1}) == f"{name}: is not a field of a request; did you mean {meant}?"


@pytest.mark.parametrize("name", ["colour", "style", "x", "", "steps" * 1_000_000, "NUL\0"])
def test_nothing_is_guessed(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request({"prompt": "a boat", name: 1})
    assert caught.value.message == "is not a field of a request"


def test_of_an_adapter_its_own_fields_are_meant() -> None:
    told = refusal(loras=[{"name": "ink", "weight": 0.5}])
    assert told == "loras.0.weight: is not a field of a LoRA; did you mean scale?"
    assert refusal(loras=[{"name": "ink", "scal": 1}]).endswith("did you mean scale?")


def test_a_wrapped_request_is_told_so_and_not_that_its_prompt_is_missing() -> None:
    with pytest.raises(InvalidRequest, match=r"^input: .*what is in it is the request itself"):
        parse_request({"input": {"prompt": "a boat"}})


def test_every_word_leads_to_a_field_and_is_none_itself() -> None:
    for synonyms, fields in ((_SYNONYMS, GenerationRequest.model_fields), (_LORA_SYNONYMS, LoraRequest.model_fields)):
        assert {part for field in synonyms for part in field.split(" and ")} <= set(fields)
        words = [word for text in synonyms.values() for word in text.split()]
        assert len(words) == len(set(words)), "one meaning each"
        assert not set(words) & set(fields)
    assert not set(_ELSEWHERE) & set(GenerationRequest.model_fields)
    spelled = {field: field.replace("_", "-") for field in GenerationRequest.model_fields}
    assert all(FIELD_WORDS.of_request.meaning(name) == field for field, name in spelled.items())


def test_a_name_that_is_no_text_at_all_is_told() -> None:
    with pytest.raises(InvalidRequest, match=r"^request: "):
        parse_request({"prompt": "a boat", "\ud800": 1})
