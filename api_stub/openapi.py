"""Shapes and examples for `/docs` and `/openapi.json`; what is judged at run time is in `tasks.request`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from api_stub.openai.errors import ErrorBody
from api_stub.openai.errors import speaks as speaks_openai
from api_stub.problems import MEDIA_TYPE, Problem
from tasks.job import Job, Output
from tasks.models import ModelDefaults, ModelLimits

_WHY = {
    400: "The body is not JSON.",
    401: "A valid bearer token is needed.",
    404: "No such thing (any more); `type` and `detail` say which.",
    409: "The idempotency key was used with another body.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "A field is not acceptable; `field` names it.",
    408: "The body came too slowly.",
    429: "The queue is full, or this key has sent what it may for now; see `Retry-After`.",
    503: "Redis or the object store is away; see `Retry-After`.",
}


class JobPage(BaseModel):
    jobs: list[Job]
    #: For the next call; null: this was the last page.
    cursor: str | None


class JobBatch(BaseModel):
    #: In the order of the requests.
    jobs: list[Job]


class AbortedJobs(BaseModel):
    #: Those that were live; each ends now, or at its next denoising step.
    aborted: list[str]


class OutputLink(Output):
    url: str
    download_url: str


class OutputLinks(BaseModel):
    outputs: list[OutputLink]
    expires_s: int


class PublicModel(BaseModel):
    name: str
    modality: str
    mode: str
    max_batch_rows: int
    image_input: bool
    mask_input: bool
    noise_schedulers: list[str]
    loras: list[str]
    max_loras: int
    output_formats: list[str] = Field(description="The default first.")
    defaults: ModelDefaults
    limits: ModelLimits
    sizes: list[tuple[int, int]]


class OpenAIModel(BaseModel):
    id: str
    object: Literal["model"] = "model"
    #: Not known here; OpenAI's clients need a number.
    created: int = 0
    owned_by: str = "safelight"


class ModelList(BaseModel):
    models: list[PublicModel]
    default: str
    max_body_bytes: int = Field(description="The largest body that is read; `data:` URIs count.")
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class WorkerList(BaseModel):
    workers: list[dict[str, Any]]


class QueuePriority(BaseModel):
    priority: int
    queued: int
    oldest_s: float


class Queue(BaseModel):
    model: str
    queued: int
    running: int
    oldest_s: float | None = Field(description="Age of the oldest queued job, seconds.")
    priorities: list[QueuePriority] = Field(description="Those that wait, 9 first.")


class TenantQueue(BaseModel):
    tenant: str
    #: Outputs of its jobs that wait, and that run.
    queued_rows: int
    running_rows: int
    weight: float
    #: null: no limit.
    max_queued_rows: int | None
    max_running_rows: int | None


class QueueList(BaseModel):
    queues: list[Queue]
    #: Those that are configured, and those with live jobs.
    tenants: list[TenantQueue]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these problems."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {status: {"description": _WHY[status], "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}


def answer(status: int, description: str, model: type[BaseModel] | None = None) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that has one more way to say yes."""
    return {status: {"description": description} | ({} if model is None else {"model": model})}


def _body(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"summary": name, "value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}


_REQUEST = {"$ref": "#/components/schemas/GenerationRequest"}
_TREE = {"prompt": "a tree on a hill at sunset", "seed": 7}

ONE_BODY = _body(
    _REQUEST,
    {
        "the least": {"prompt": "a red boat at night"},
        "all by hand": {
            **_TREE,
            "model": "tiny",
            "width": 96,
            "height": 96,
            "num_inference_steps": 20,
            "guidance_scale": 4.0,
            "num_outputs": 4,
            "output_format": "webp",
            "preview_every": 4,
            "priority": 7,
            "metadata": {"user": "42"},
        },
        "from a picture": {**_TREE, "image": "s3://safelight/inputs/hill.png", "strength": 0.6},
        "the newest of a group wins": {**_TREE, "group": "editor-17", "supersede": True, "deadline_s": 30},
    },
)
BATCH_BODY = _body(
    {
        "type": "object",
        "required": ["jobs"],
        "additionalProperties": False,
        "properties": {"jobs": {"type": "array", "minItems": 1, "maxItems": 1000, "items": _REQUEST}},
    },
    {"two": {"jobs": [{"prompt": "a red boat at night"}, _TREE]}},
)
_STREAM_EXAMPLE = (
    'id: 1764493200000-0\nevent: progress\ndata: {"stage":"denoising","step":7,"num_steps":20,"fraction":0.345}\n\n'
    'id: 1764493201000-0\nevent: done\ndata: {"id":"01K…","status":"succeeded","outputs":[…]}\n\n'
)
EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {"example": _STREAM_EXAMPLE}}},
    204: {"description": "The job has ended and `Last-Event-ID` was its last event."},
}
_MANY_EXAMPLE = _STREAM_EXAMPLE.replace('data: {"stage"', 'data: {"id":"01K…","stage"') + "event: end\ndata: {}\n\n"
MANY_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {"example": _MANY_EXAMPLE}}},
}


def complete(schema: dict[str, Any]) -> dict[str, Any]:
    """Add what no route declares by a model: the problem, and our 422 in place of the framework's."""
    components = schema["components"]["schemas"]
    components["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    components["ErrorBody"] = ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    for name in ("Problem", "ErrorBody"):
        components.update(components[name].pop("$defs", {}))
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            own = operation["responses"].get("422", {})
            if "HTTPValidationError" in str(own):
                del operation["responses"]["422"]
                operation["responses"] |= {} if speaks_openai(path) else {"422": problems(422)[422]}
    return schema
