"""What a producer sends. Shape and ranges are checked here; a model's own limits are checked in `resolve.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from tasks.errors import InvalidRequest
from tasks.field_words import FieldWords
from tasks.output_prefix import clean_prefix
from tasks.redaction import shown_origin, shown_uri

MAX_SEED = 2**63 - 1
MAX_METADATA_BYTES = 16 * 1024
#: JSON readers give up somewhere above this; a record that was written must be readable.
MAX_METADATA_DEPTH = 64
_MAX_FIELD, _MAX_MESSAGE = 200, 1_000
_MAX_URI = 8_192
IMAGE_FORMATS = ("png", "jpeg", "webp")
VIDEO_FORMATS = ("mp4", "webp", "gif")
AUDIO_FORMATS = ("wav", "flac")
OutputFormat = Literal["png", "jpeg", "webp", "mp4", "gif", "wav", "flac"]


def _encodable(text: str) -> str:
    """Lone surrogates cannot be stored, hashed or tokenised, NUL ends strings elsewhere: refuse both here."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"holds a lone surrogate at character {error.start}; send valid Unicode") from None
    if "\0" in text:
        raise ValueError(f"holds a NUL at character {text.index(chr(0))}")
    return text


_Encodable = AfterValidator(_encodable)


def _media_uri(uri: str) -> str:
    if not uri.startswith(("s3://", "https://", "http://", "data:")):
        raise ValueError("must be an s3://, https:// or data: URI")
    if uri.startswith("data:"):  # base64 may come in lines
        return uri
    if len(uri) > _MAX_URI:
        raise ValueError(f"must have at most {_MAX_URI} characters")
    if re.search(r"[\x00-\x1f\x7f]" if uri.startswith("s3:") else r"[\x00-\x20\x7f]", uri):
        raise ValueError("must not hold control characters, and as a URL no space")
    return _without_login(uri)


def _without_login(url: str) -> str:
    """Records are read by many, so a password has no place in one; and `https://good.example@evil.example` misleads."""
    match = re.match(r"https?://([^/?#]*)", url)
    if match and re.search(r"[@\\]", match[1]):
        raise ValueError("must not carry a user name, a password or a backslash before its path")
    return url


MediaURI = Annotated[str, _Encodable, AfterValidator(_media_uri)]


WebhookURL = Annotated[
    str,
    Field(max_length=2_048, pattern=r"^https?://[^\s\x00-\x20\x7f]+$"),
    _Encodable,
    AfterValidator(_without_login),
]


def _no_boolean(value: object) -> object:
    """Python counts `true` as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


class LoraRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    scale: Annotated[float, Field(ge=-4, le=4, allow_inf_nan=False)] = 1.0

    _scale_is_a_number = field_validator("scale", mode="before")(_no_boolean)


def _at_most_16(items: object) -> object:
    """Before any item is looked at: a million wrong ones would take half a minute to tell."""
    if isinstance(items, list | tuple) and len(items) > 16:
        raise ValueError(f"has {len(items)} entries; at most 16")
    return items


_NUMBERS = (
    "height",
    "width",
    "num_inference_steps",
    "guidance_scale",
    "seed",
    "num_outputs",
    "strength",
    "num_frames",
    "fps",
    "duration_s",
    "priority",
    "deadline_s",
    "preview_every",
)


class GenerationRequest(BaseModel):
    """A wish for pictures, video or sound. Fields left out take the model's defaults when the job is created."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    #: A name of the models file; the first when absent.
    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    #: What to make.
    prompt: Annotated[str, Field(min_length=1, max_length=10_000), _Encodable]
    #: What should not appear.
    negative_prompt: Annotated[str, Field(max_length=10_000), _Encodable] | None = None
    #: Pixels; what the model's limits allow, and a multiple of `size_multiple`.
    height: Annotated[int, Field(ge=8, le=16_384)] | None = None
    #: As `height`.
    width: Annotated[int, Field(ge=8, le=16_384)] | None = None
    #: Denoising steps.
    num_inference_steps: Annotated[int, Field(ge=1, le=1_000)] | None = None
    #: How closely the result follows the prompt.
    guidance_scale: Annotated[float, Field(ge=0, le=100)] | None = None
    #: Drawn and recorded when absent; output k uses seed + k.
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    #: Pictures, videos or sounds of this job.
    num_outputs: Annotated[int, Field(ge=1, le=16)] = 1
    #: Start from this picture: an `s3://`, `https://` or `data:` URI.
    image: MediaURI | None = None
    #: Repaint the white of this mask; needs `image`.
    mask_image: MediaURI | None = None
    #: How far to move from `image`.
    strength: Annotated[float, Field(gt=0, le=1)] | None = None
    #: Video: frames.
    num_frames: Annotated[int, Field(ge=1, le=10_000)] | None = None
    #: Video: frames a second.
    fps: Annotated[float, Field(gt=0, le=240)] | None = None
    #: Audio or video: seconds.
    duration_s: Annotated[float, Field(gt=0, le=3_600)] | None = None
    #: One of the model's `noise_schedulers`.
    noise_scheduler: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    #: Adapters of the model, each `{name, scale}`; the scale is 1 when absent.
    loras: Annotated[tuple[LoraRequest, ...], BeforeValidator(_at_most_16)] = ()
    #: `png`, `jpeg`, `webp` for pictures, `mp4`, `webp`, `gif` for videos, `wav`, `flac` for sounds; the first of each
    #: is the default.
    output_format: OutputFormat | None = None
    #: 9 goes first.
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    #: Seconds from creation; a job that has not succeeded by then fails with `deadline_exceeded`.
    deadline_s: Annotated[float, Field(gt=0, le=30 * 86_400)] | None = None
    #: Never batched with others: bit-equal to a solo run.
    exact: bool = False
    #: A name to list and abort jobs by.
    group: Annotated[str, Field(min_length=1, max_length=128), _Encodable] | None = None
    #: A newer job of the group aborts the older ones.
    supersede: bool = False
    #: Told when the job ends.
    webhook_url: WebhookURL | None = None
    #: Denoising steps between previews; 0 is off.
    preview_every: Annotated[int, Field(ge=0, le=1_000)] = 0
    #: A relative folder; ends in `/` once checked.
    output_prefix: Annotated[str, _Encodable] = ""
    #: JSON of yours, at most 16 KiB, returned as it is.
    metadata: dict[str, Any] = Field(default_factory=dict)

    _numbers_are_numbers = field_validator(*_NUMBERS, mode="before")(_no_boolean)
    _prefix_is_a_folder = field_validator("output_prefix")(clean_prefix)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """For logs and tracebacks: URIs without what signs them or logs in; of a webhook even the path may be a key."""
        for name, value in super().__repr_args__():
            if name in ("image", "mask_image") and value is not None:
                value = shown_uri(value)
            elif name == "webhook_url" and value is not None:
                value = shown_origin(value)
            yield name, value

    @field_validator("metadata")
    @classmethod
    def _bounded_metadata(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        try:
            size = len(json.dumps(metadata, ensure_ascii=False, allow_nan=False).encode("utf-8"))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"is not plain JSON: {error}") from None
        if size > MAX_METADATA_BYTES:
            raise ValueError(f"is {size} bytes of JSON; at most {MAX_METADATA_BYTES}")
        if _depth(metadata) > MAX_METADATA_DEPTH:
            raise ValueError(f"is nested deeper than {MAX_METADATA_DEPTH} levels")
        return metadata

    @model_validator(mode="after")
    def _belongs_together(self) -> GenerationRequest:
        if self.mask_image is not None and self.image is None:
            raise ValueError("mask_image: needs image as well")
        if self.strength is not None and self.image is None:
            raise ValueError("strength: only has a meaning with image")
        if len({lora.name for lora in self.loras}) < len(self.loras):
            raise ValueError("loras: names one of them twice")
        if self.supersede and self.group is None:
            raise ValueError("supersede: needs a group")
        if self.seed is not None and self.seed + self.num_outputs - 1 > MAX_SEED:
            raise ValueError("seed: seed + num_outputs - 1 exceeds 2**63 - 1")
        return self


def _depth(value: Any) -> int:
    """Levels of a JSON value; by levels and not by recursion, which the depth to be found could exhaust."""
    level, depth = [value], 0
    while level := [child for node in level for child in _children(node)]:
        depth += 1
    return depth


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def parse_request(data: dict[str, Any] | GenerationRequest) -> GenerationRequest:
    """Check shape and ranges. Raises `InvalidRequest` naming the first wrong field."""
    if isinstance(data, GenerationRequest):
        return data
    try:
        return GenerationRequest.model_validate(data)
    except ValidationError as error:
        raise invalid_request(error) from None


FIELD_WORDS = FieldWords(GenerationRequest.model_fields, LoraRequest.model_fields)
#: Of messages that speak of Python, or of its parser, to somebody who sent JSON.
_PLAIN_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}


def in_order(lines: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """What is missing comes last: a name that nobody knows is often the reason, and tells more."""
    return sorted(lines, key=lambda line: line["type"] == "missing")


def invalid_request(error: ValidationError) -> InvalidRequest:
    first = in_order(error.errors(include_url=False, include_input=False))[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "model_type" and not field:
        return InvalidRequest("request", "must be an object with the fields of a request")
    message = _PLAIN_WORDS.get(first["type"], message)
    if not field:  # from the whole-model check, whose messages begin with the field
        field, colon, message = message.partition(": ")
        if not colon:
            field, message = "request", field
    if first["type"] == "extra_forbidden":
        message = FIELD_WORDS.unknown(first["loc"])
    # A name may have come with megabytes, and both go into records, answers and logs.
    return InvalidRequest(field[:_MAX_FIELD], message[:_MAX_MESSAGE])
