"""Every route, the fields of a request and those of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from api_stub.app import create_app
from docs_gen.fields import kind, meanings, schemas, shown, table
from tasks.job import Job, JobError, JobMetrics, Output, Progress
from tasks.request import GenerationRequest
from tasks.settings import Settings

_HEAD = """# HTTP

The API serves its own description: `/docs` to try it, `/openapi.json` for a generator of clients. Errors of `/v1` are
RFC 9457 problems (`application/problem+json`) with `type`, `title`, `status`, `detail` and, for a wrong field, `field`;
those of `/v1/images` and `/v1/videos` have OpenAI's shape ([migrating.md](../migrating.md)). With `SAFELIGHT_API_KEYS`
set, every route but `/`, `/docs`, `/healthz` and `/readyz` needs `Authorization: Bearer KEY`. Ids of jobs have at most
64 of `A-Z a-z 0-9 _ -`.
"""
_TITLES = {
    "jobs": "Jobs",
    "system": "The system",
    "operator": "For operators",
    "openai": "OpenAI's routes",
    "operations": "Probes and metrics",
}
_JOB_PARTS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("progress", Progress),
    ("outputs[]", Output),
    ("error, errors[]", JobError),
    ("metrics", JobMetrics),
)


def http_page() -> str:
    described = create_app(Settings.model_construct(**_defaults())).openapi()
    parts = [_HEAD]
    for tag, title in _TITLES.items():
        parts += [
            f"## {title}\n",
            table(["route", "what it does", "parameters", "answers"], list(_routes(described, tag))),
            "",
        ]
    parts += ["## A request\n", "The body of `POST /v1/jobs`. Other fields are refused.\n", _request(), ""]
    parts += ["## A job\n", _fields(Job), ""]
    for name, model in _JOB_PARTS:
        parts += [f"### `{name}`\n", _fields(model), ""]
    return "\n".join(parts)


def _defaults() -> dict[str, Any]:
    """Whatever the environment says, the page is the same."""
    return {name: field.get_default(call_default_factory=True) for name, field in Settings.model_fields.items()}


def _routes(described: dict[str, Any], tag: str) -> Iterator[list[str]]:
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            if operation["tags"] != [tag]:
                continue
            told = " ".join(operation.get("description", "").split())
            named = [_parameter(p) for p in operation.get("parameters", ()) if p["in"] != "path"]
            answers = sorted(status for status in operation["responses"] if status != "401")
            yield [f"`{method.upper()} {path}`", told, ", ".join(named) or "–", " ".join(answers)]


def _parameter(described: dict[str, str]) -> str:
    name = described["name"]
    return f"header `{name.title()}`" if described["in"] == "header" else f"`{name}`"


def _request() -> str:
    told, parts = meanings(GenerationRequest), schemas(GenerationRequest)
    rows = []
    for name, field in GenerationRequest.model_fields.items():
        default = "required" if field.is_required() else shown(field.get_default(call_default_factory=True))
        rows.append([f"`{name}`", default, _kind(parts[name]), told[name]])
    return table(["field", "default", "value", "meaning"], rows)


def _fields(model: type[BaseModel]) -> str:
    told, parts = meanings(model), schemas(model)
    rows = [[f"`{name}`", _kind(parts[name]), told[name]] for name in model.model_fields]
    return table(["field", "value", "meaning"], rows)


def _kind(part: dict[str, Any]) -> str:
    return kind(part).replace("table", "object")
