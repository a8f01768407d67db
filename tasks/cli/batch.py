"""`submit --batch`: a file of requests, one JSON object a line, and the table of what became of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.cli.fields import sendable
from tasks.cli.output import outcome_of, print_table, shortened
from tasks.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from tasks.job import Job
    from tasks.models import Models

_MAX_REQUESTS = 10_000
#: Of a file; devices and pipes may never end.
_MAX_BYTES = 64 * 2**20


def text_of(path: str, option: str) -> str:
    """A file, or standard input for `-`. Raises `ConfigError` that names the option."""
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            body = file.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise ConfigError(f"{option}: {path} has more than {_MAX_BYTES} bytes")
        return body.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{option}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option}: {path} is not UTF-8 text") from None


def read_batch(path: str, given: Mapping[str, Any], models: Models) -> list[dict[str, Any]]:
    """The requests of the file, each on top of the fields that the command line gave.

    Raises `InvalidRequest` with the line and the field of the first wrong one: none is sent then.
    """
    lines = [(number, line) for number, line in enumerate(text_of(path, "--batch").splitlines(), 1) if line.strip()]
    if not 1 <= len(lines) <= _MAX_REQUESTS:
        raise ConfigError(f"--batch: {path} holds {len(lines)} requests; 1 to {_MAX_REQUESTS} are sent at once")
    return [_request(number, line, given, models) for number, line in lines]


def _request(number: int, line: str, given: Mapping[str, Any], models: Models) -> dict[str, Any]:
    from tasks.submission import new_job

    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(f"line {number}", f"is not JSON: {error}") from None
    if isinstance(fields, str):
        fields = {"prompt": fields}
    if not isinstance(fields, dict):
        raise InvalidRequest(f"line {number}", 'is a request, as {"prompt": "a boat"}, or a prompt in quotes')
    try:
        request = {**given, **sendable(fields)}
        new_job(request, models)  # checks it as its submission will
    except InvalidRequest as error:
        raise InvalidRequest(f"line {number}: {error.field}", error.message) from None
    return request


def print_batch(jobs: Sequence[Job], width: int | None) -> None:
    """In the order of the file."""
    room = 60 if width is None else max(10, width - 77)
    print_table(
        [
            {
                "#": str(number),
                "id": job.id,
                "status": job.status.value,
                "seed": str(job.request.seed),
                "result": shortened(outcome_of(job), 40 if width is None or width >= 120 else 18),
                "prompt": shortened(job.request.prompt, room),
            }
            for number, job in enumerate(jobs, 1)
        ]
    )
