"""`docs/operations.md` names every setting with the default that the code has, and compose passes each one on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(SAFELIGHT_[A-Z0-9_]+)` \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)
SHOWN = {"": "empty", None: "unset", PydanticUndefined: "host name"}
FIELDS = {f"SAFELIGHT_{name.upper()}": field for name, field in Settings.model_fields.items()}
#: Compose gives each container its own name, and its store has no regions.
NOT_IN_COMPOSE = {"SAFELIGHT_WORKER_NAME", "SAFELIGHT_S3_REGION"}


def shown(default: Any) -> str:
    if default in SHOWN:
        return SHOWN[default]
    return f"`{default:.0f}`" if isinstance(default, float) and default.is_integer() else f"`{default}`"


def test_the_table_has_every_setting_and_no_other() -> None:
    names = [name for name, _, _ in ROW.findall((ROOT / "docs/operations.md").read_text("utf-8"))]
    assert sorted(names) == sorted(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_the_default_in_the_table_is_the_code_s(name: str) -> None:
    rows = {row: default for row, default, _ in ROW.findall((ROOT / "docs/operations.md").read_text("utf-8"))}
    assert rows[name] == shown(FIELDS[name].default)


def test_compose_passes_every_setting_on() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    passed = set(re.findall(r"^  (SAFELIGHT_[A-Z0-9_]+):", text, re.MULTILINE))
    assert passed == FIELDS.keys() - NOT_IN_COMPOSE
