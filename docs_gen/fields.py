"""Fields of a pydantic model as rows of a table: kind and bounds from its schema, meaning from the `#:` above each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

_FIELD = re.compile(r"^    (\w+): ")
_COMMENT = re.compile(r"^    #: ?(.*)")


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the comment above each field says."""
    found: dict[str, str] = {}
    lines: list[str] = []
    for line in inspect.getsource(model).splitlines():
        if comment := _COMMENT.match(line):
            lines.append(comment[1])
            continue
        if (field := _FIELD.match(line)) and lines:
            found[field[1]] = linked(" ".join(lines))
        lines = []
    return found


def linked(text: str) -> str:
    """`docs/page.md` as a link from a page of the reference."""
    text = re.sub(r"docs/reference/([\w-]+\.md)", r"[\1](\1)", text)
    return re.sub(r"docs/([\w-]+\.md)(#[\w-]+)?", r"[\1](../\1\2)", text)


def schemas(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Each field's schema, with references resolved."""
    schema = model.model_json_schema()
    return {name: _resolved(part, schema.get("$defs", {})) for name, part in schema["properties"].items()}


def _resolved(part: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in part:
        return {**known[part["$ref"].rpartition("/")[2]], **{k: v for k, v in part.items() if k != "$ref"}}
    options = [_resolved(option, known) for option in part.get("anyOf", ()) if option.get("type") != "null"]
    return {**options[0], **{k: v for k, v in part.items() if k != "anyOf"}} if options else dict(part)


def kind(part: Mapping[str, Any]) -> str:
    """`integer, 1 to 16`: what a value may be, as briefly as it can be said."""
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    words = {"object": "table", "array": "list", "string": "text", "boolean": "true or false"}
    name = words.get(part.get("type", ""), part.get("type", "any"))
    return ", ".join([name, *_bounds(part)])


def _bounds(part: Mapping[str, Any]) -> Sequence[str]:
    low, high = part.get("minimum"), part.get("maximum")
    above = part.get("exclusiveMinimum")
    if above is not None:
        return [f"above {_number(above)}" + (f", at most {_number(high)}" if high is not None else "")]
    if low is not None and high is not None:
        return [f"{_number(low)} to {_number(high)}"]
    if low is not None:
        return [f"from {_number(low)}"]
    length = part.get("maxLength")
    return [f"at most {_number(length)} characters"] if length is not None else []


def _number(value: float) -> str:
    return f"{value:_.10g}".replace("_", " ")


def shown(default: Any) -> str:
    """A default as a reader would write it."""
    if default is None:
        return "–"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float) and default.is_integer():
        return f"`{default:.0f}`"
    return f"`{default}`" if default not in ("", (), [], {}) else "empty"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
