"""`docs/field-reports.md`: every report has tests, and those are in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.named import TEST, has_test

PAGE = (Path(__file__).parents[2] / "docs/field-reports.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\S+#\d.*?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)


def test_no_report_is_forgotten() -> None:
    """As many as were collected; a new one makes it one more."""
    assert len(ROWS) == PAGE.count("\n| ") - 2 == 34


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_report_names_tests_that_are_there(row: tuple[str, str, str]) -> None:
    _, _, shown = row
    assert [f"{path}::{name}" for path, name in TEST.findall(shown) if not has_test(path, name)] == []
    assert TEST.search(shown) and not TEST.sub("", shown).strip(", "), "the last column is a list of tests"
