"""What `/openapi.json` says of these routes: bodies with examples that run, and errors in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from api_stub.openai.schema import ImageFields, VideoFields

_WHY = {
    400: "A field is not acceptable; `error.param` names it.",
    401: "A valid bearer token is needed.",
    404: "No such model, or no such video.",
    409: "The idempotency key was used with another body, or somebody aborted the job.",
    413: "The body is too large.",
    415: "The body is of another content type.",
    429: "The queue is full; see `Retry-After`.",
    500: "The job failed; `error.code` is its error type.",
    503: "Redis or the object store is away; see `Retry-After`.",
    504: "The job is not done yet and goes on; the message and `X-Safelight-Job-Id` name it.",
}
_ERROR = {"$ref": "#/components/schemas/ErrorBody"}
_FILE = {"type": "string", "format": "binary"}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"description": _WHY[status], "content": {"application/json": {"schema": _ERROR}}}
        for status in statuses
    }


def _schema(fields: type[ImageFields] | type[VideoFields], **more: Any) -> dict[str, Any]:
    """OpenAI's fields; ours, of `GenerationRequest`, are welcome beside them."""
    schema = fields.model_json_schema()
    prompt = {"type": "string", "minLength": 1, "maxLength": 10_000}
    schema["properties"] = {"prompt": prompt, **schema["properties"], **more}
    schema["required"] = ["prompt", *(name for name in ("image",) if name in more)]
    return schema


def _examples(examples: dict[str, Any]) -> dict[str, Any]:
    return {name: {"summary": name, "value": value} for name, value in examples.items()}


GENERATION_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _schema(ImageFields),
                "examples": _examples(
                    {
                        "the least": {"prompt": "a red boat at night"},
                        "OpenAI's fields": {
                            "model": "tiny",
                            "prompt": "a tree on a hill at sunset",
                            "n": 2,
                            "size": "128x96",
                            "response_format": "b64_json",
                            "output_format": "webp",
                            "user": "42",
                        },
                        "ours beside them": {
                            "prompt": "a tree on a hill at sunset",
                            "seed": 7,
                            "num_inference_steps": 12,
                            "guidance_scale": 4.0,
                            "priority": 7,
                        },
                        "a stream": {"prompt": "a blue car on a road", "stream": True, "partial_images": 2},
                    }
                ),
            }
        },
    }
}
EDIT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": _schema(ImageFields, image=_FILE, mask=_FILE),
                "examples": _examples({"a picture, changed": {"prompt": "a red boat at night", "strength": 0.6}}),
            }
        },
    }
}
VIDEO_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _schema(VideoFields),
                "examples": _examples(
                    {
                        "the least": {"prompt": "a fish swims by"},
                        "by the second": {"prompt": "a fish swims by", "seconds": "2", "seed": 7},
                    }
                ),
            },
            "multipart/form-data": {"schema": _schema(VideoFields, input_reference=_FILE)},
        },
    }
}
_STREAM_EXAMPLE = (
    'event: image_generation.partial_image\ndata: {"type":"image_generation.partial_image",…}\n\n'
    'event: image_generation.completed\ndata: {"type":"image_generation.completed","b64_json":"…",…}\n\n'
)
IMAGE_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The pictures, or with `stream` their events. `X-Safelight-Job-Id` names the job.",
        "content": {"text/event-stream": {"example": _STREAM_EXAMPLE}},
    }
}
CONTENT: dict[int | str, dict[str, Any]] = {307: {"description": "`Location`: the file, at the object store."}}
