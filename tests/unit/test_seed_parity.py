"""`docs/seed-parity.md` has its 45 rows, and every test and name that it points to is in the repository."""

from __future__ import annotations

import re

import pytest

from tests.named import ROOT, TEST, missing

ROW = re.compile(r"^\| (\d+)( †)? \| (.+) \| (.+) \|(.*)\|$", re.MULTILINE)
FAULTS = {12, 19, 30, 39, 44}

PAGE = (ROOT / "docs/seed-parity.md").read_text("utf-8")
ROWS = {int(number): (mark, here, shown) for number, mark, _, here, shown in ROW.findall(PAGE)}


def test_there_are_45_rows_in_order() -> None:
    assert [int(number) for number, *_ in ROW.findall(PAGE)] == list(range(1, 46))


@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_row_names_what_is_there(number: int) -> None:
    mark, here, shown = ROWS[number]
    assert missing(here) + missing(shown) == []
    assert not TEST.sub("", shown).strip(", "), "the last column is a list of tests"
    assert TEST.search(shown) or "**not yet**" in here
    assert bool(mark) == (number in FAULTS)


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_each_fault_has_tests_of_its_own(number: int) -> None:
    names = [name for path, name in TEST.findall(ROWS[number][2]) if path == "tests/unit/test_seed_faults.py"]
    assert names
    assert all(name.startswith(f"test_row_{number}_") for name in names)
