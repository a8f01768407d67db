"""What the parser of the command line refuses, in our words: one line, the name of the field, where to read on."""

from __future__ import annotations

import sys
from typing import Any

import typer

from tasks.cli.exits import USAGE, say

#: typer brings its own copy of click, or uses the one that is installed: take the one that its errors come from.
ShellError: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def told(error: Any) -> int:
    """Tell it, and the exit code. Help that was asked for by giving no word is shown as help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return USAGE
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "safelight"
    field, message = _field_of(error), error.message if error.message else error.format_message()
    if field is not None:
        say(f"{field}: {message}", {"type": "invalid_request", "field": field, "message": message})
    else:
        line = f"{_meant(error) or _first_small(error.format_message())} (see: {command} --help)"
        say(line, {"type": "usage", "message": line})
    return int(getattr(error, "exit_code", USAGE))


def _field_of(error: Any) -> str | None:
    """The field of a request that a wrong value was meant for, named as the API names it; else the option's name."""
    from tasks.cli.fields import FIELD_OPTIONS

    param = getattr(error, "param", None)
    hint = getattr(error, "param_hint", None)
    if type(error).__name__ != "BadParameter" or (param is None and hint is None):
        return None
    if param is not None and param.name in {option.field for option in FIELD_OPTIONS}:
        return str(param.name)
    if isinstance(hint, str):
        return hint
    return str(next(iter(param.opts), param.name)) if param is not None else None


def _meant(error: Any) -> str | None:
    """Of an option that is none: the one of the same meaning, for those who know the words of another system."""
    from tasks.cli.fields import FIELD_OPTIONS
    from tasks.request import FIELD_WORDS

    name = getattr(error, "option_name", None)
    meant = FIELD_WORDS.of_request.meaning(name.strip("-")) if name and error.ctx.command.name == "submit" else None
    if meant is None:
        return None
    names = {option.field: option.names[0] for option in FIELD_OPTIONS}
    flags = [names[field] for field in meant.split(" and ") if field in names]
    return f"no such option: {name}; did you mean {' and '.join(flags)}?" if flags else None


def _first_small(message: str) -> str:
    text = message.strip().removeprefix("Invalid value: ").rstrip(".")
    return text[:1].lower() + text[1:]
