"""What OpenAI's clients send and read, as types. A field of ours that they do not know is allowed beside theirs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Quality = Literal["low", "medium", "high", "xhigh", "max", "auto", "standard", "hd"]
ResponseFormat = Literal["url", "b64_json"]


class ImageFields(BaseModel):
    """OpenAI's fields that are no fields of a job's request. The others pass through: `prompt`, `seed`, `loras`, …"""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    model: Annotated[str | None, Field(description="Of `GET /v1/models`; absent: the first that makes pictures.")] = (
        None
    )
    n: Annotated[int | None, Field(ge=1, le=16, description="Pictures; number k has seed + k.")] = None
    size: Annotated[
        str | None,
        Field(pattern=r"^(auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4})$", description="`WIDTHxHEIGHT` or `auto`."),
    ] = None
    response_format: Annotated[
        ResponseFormat | None, Field(description="`url` is good for an hour. Absent: both are in the answer.")
    ] = None
    output_format: Annotated[Literal["png", "jpeg", "webp"] | None, Field(description="Absent: the model's.")] = None
    background: Annotated[
        Literal["auto", "opaque", "transparent"] | None, Field(description="`transparent` is refused.")
    ] = None
    stream: bool | None = None
    partial_images: Annotated[int | None, Field(ge=0, le=3, description="Previews in a stream, JPEG.")] = None
    user: Annotated[str | None, Field(max_length=512, description="Kept as `metadata.user` of the job.")] = None
    safety_identifier: Annotated[str | None, Field(max_length=512, description="As `user`; wins over it.")] = None
    quality: Annotated[Quality | None, Field(description="Ignored; say `num_inference_steps`.")] = None
    style: Annotated[Literal["vivid", "natural"] | None, Field(description="Ignored.")] = None
    moderation: Annotated[Literal["low", "auto"] | None, Field(description="Ignored: nothing is moderated.")] = None
    output_compression: Annotated[int | None, Field(ge=0, le=100, description="Ignored.")] = None
    input_fidelity: Annotated[Literal["high", "low"] | None, Field(description="Ignored; say `strength`.")] = None


#: Accepted, and of no effect; named in the answer's header when they were given.
IGNORED = ("quality", "style", "moderation", "output_compression", "input_fidelity")


class ImageDatum(BaseModel):
    url: str | None = None
    b64_json: str | None = None
    seed: int


class ImagesAnswer(BaseModel):
    created: int
    data: list[ImageDatum]
    background: Literal["opaque"] = "opaque"
    output_format: str
    size: str
    #: What was changed in the input, in words.
    warnings: list[str] = []


class VideoFields(BaseModel):
    """OpenAI's fields of a video that are no fields of a job's request; the others pass through."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    model: Annotated[str | None, Field(description="Of `GET /v1/models`; absent: the first that makes videos.")] = None
    size: Annotated[
        str | None,
        Field(pattern=r"^(auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4})$", description="`WIDTHxHEIGHT` or `auto`."),
    ] = None
    seconds: Annotated[float | None, Field(gt=0, le=3_600, description="A number or a text; sets `num_frames`.")] = None
    input_reference: Annotated[
        str | dict[str, Any] | None, Field(description="A picture as a file, a URI, or `{image_url: URI}`.")
    ] = None
    user: Annotated[str | None, Field(max_length=512, description="Kept as `metadata.user` of the job.")] = None


class VideoError(BaseModel):
    code: str
    message: str


class Video(BaseModel):
    id: str
    object: Literal["video"] = "video"
    status: Literal["queued", "in_progress", "completed", "failed"]
    progress: Annotated[int, Field(ge=0, le=100)]
    created_at: int
    completed_at: int | None
    expires_at: int | None
    model: str
    prompt: str
    size: str
    seconds: str
    error: VideoError | None
    remixed_from_video_id: None = None


class VideoList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Video]
    first_id: str | None
    last_id: str | None
    has_more: bool


class VideoDeleted(BaseModel):
    id: str
    object: Literal["video.deleted"] = "video.deleted"
    deleted: bool = True
