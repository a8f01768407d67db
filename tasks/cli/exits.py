"""What the shell learns: exit codes, and every error as one line. Knows no command."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable
from typing import NoReturn

from tasks.errors import ConfigError, InvalidRequest, SafelightError, StoreUnavailable

SUCCEEDED = 0
FAILED = 1
USAGE = 2
ABORTED = 3
UNREACHABLE = 4
#: Ctrl-C, as shells report it.
INTERRUPTED = 130


def run() -> NoReturn:
    """Run the command line; every error is one line on stderr, and on stdout as JSON if `--json` was given."""
    from tasks.cli.app import app
    from tasks.cli.usage import ShellError, told

    try:
        code = app(prog_name="safelight", standalone_mode=False)
    except SafelightError as error:
        code = _tell(error)
    except ShellError as error:
        code = told(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    _leave(code if isinstance(code, int) else SUCCEEDED)


def code_of(error: SafelightError) -> int:
    match error:
        case InvalidRequest() | ConfigError():
            return USAGE
        case StoreUnavailable():
            return UNREACHABLE
        case _:
            return FAILED


def code_of_statuses(statuses: Iterable[str]) -> int:
    """One code for several jobs: failed counts before aborted, and what has not ended is no failure."""
    seen = set(statuses)
    if "failed" in seen:
        return FAILED
    return ABORTED if "aborted" in seen else SUCCEEDED


def _tell(error: SafelightError) -> int:
    message = str(error) or type(error).__name__
    said = {"type": type(error).__name__, "message": message}
    if isinstance(error, InvalidRequest):
        said = {"type": error.error_type, "field": error.field, "message": error.message}
    say(message, said)
    return code_of(error)


def say(message: str, as_json: dict[str, str]) -> None:
    """What went wrong, in one line; the prompts and paths in it are somebody else's text."""
    line = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    print(f"safelight: {line}", file=sys.stderr)
    if "--json" in sys.argv:
        print(json.dumps({"error": as_json}))


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code)
