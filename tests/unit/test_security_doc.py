"""`SECURITY.md` names a test for each defence; a test that was renamed or removed leaves a hole in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
TESTS = ROOT / "tests"
NAMED = re.findall(r"`([\w/]*?)(test_\w+\.py)?(?:::(test_\w+)(…?))?`", TEXT)
FUNCTIONS = {
    name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
}


@pytest.mark.parametrize(("folder", "file"), sorted({(folder, file) for folder, file, _, _ in NAMED if file}))
def test_a_named_file_is_there(folder: str, file: str) -> None:
    assert (TESTS / folder / file).is_file() if folder else list(TESTS.rglob(file))


@pytest.mark.parametrize(("name", "cut"), sorted({(name, cut) for _, _, name, cut in NAMED if name}))
def test_a_named_test_is_there(name: str, cut: str) -> None:
    assert any(function.startswith(name) if cut else function == name for function in FUNCTIONS)


def test_every_line_of_the_table_has_a_test() -> None:
    table = TEXT.split("| threat | defence | test |")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) >= 25
    assert all("test_" in row or "make check" in row for row in table)
