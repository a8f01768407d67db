"""`docs/reference/` says what the code says, and compose passes every setting on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs_gen.__main__ import HOME, PAGES, main, stale
from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
FIELDS = {f"SAFELIGHT_{name.upper()}" for name in Settings.model_fields}
#: Compose gives each container its own name, and its store has no regions.
NOT_IN_COMPOSE = {"SAFELIGHT_WORKER_NAME", "SAFELIGHT_S3_REGION", "SAFELIGHT_S3_ADDRESSING"}


def test_no_page_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_LEASE_S", "77")
    assert stale() == [], "run `make docs`"
    assert {path.name for path in HOME.glob("*.md")} == PAGES.keys()


def test_a_stale_page_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs_gen.__main__.PAGES", {"settings.md": PAGES["settings.md"]})
    monkeypatch.setattr("docs_gen.__main__.HOME", tmp_path / "reference")
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "settings.md\n"
    assert main([]) == 0 == main(["--check"])


def test_the_settings_page_has_every_setting() -> None:
    text = (HOME / "settings.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(SAFELIGHT_[A-Z0-9_]+)`", text, re.MULTILINE)) == FIELDS
    assert "| `SAFELIGHT_LEASE_S` | `15` | number, 1 to 3 600 |" in text


def test_compose_passes_every_setting_on() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    passed = set(re.findall(r"^  (SAFELIGHT_[A-Z0-9_]+):", text, re.MULTILINE))
    assert passed == FIELDS - NOT_IN_COMPOSE
