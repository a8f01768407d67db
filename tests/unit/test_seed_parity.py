"""`docs/seed-parity.md` has its 45 rows, and every test and name that it points to is in the repository."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+)( †)? \| (.+) \| (.+) \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
NAME = re.compile(r"`((?:engine|worker)(?:\.\w+)+)`")
FAULTS = {12, 19, 30, 39, 44}

PAGE = (ROOT / "docs/seed-parity.md").read_text("utf-8")
ROWS = {int(number): (mark, here, shown) for number, mark, _, here, shown in ROW.findall(PAGE)}


@cache
def definitions(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def defines(path: Path, names: list[str]) -> bool:
    """Whether the file has classes, functions or variables so nested."""
    body: list[ast.stmt] = definitions(path).body
    for name in names:
        found = [statement for statement in body if name in _bound_by(statement)]
        if not found:
            return False
        body = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def _bound_by(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def has(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:cut]).with_suffix(".py")
        if path.is_file():
            return defines(path, parts[cut:])
    return False


def test_there_are_45_rows_in_order() -> None:
    assert [int(number) for number, *_ in ROW.findall(PAGE)] == list(range(1, 46))


@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_row_names_what_is_there(number: int) -> None:
    mark, here, shown = ROWS[number]
    missing = [f"{path}::{name}" for path, name in TEST.findall(shown) if not has_test(path, name)]
    missing += [name for name in NAME.findall(here) if not has(name)]
    assert missing == []
    assert not TEST.sub("", shown).strip(", "), "the last column is a list of tests"
    assert TEST.search(shown) or "**not yet**" in here
    assert bool(mark) == (number in FAULTS)


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_each_fault_has_tests_of_its_own(number: int) -> None:
    names = [name for path, name in TEST.findall(ROWS[number][2]) if path == "tests/unit/test_seed_faults.py"]
    assert names
    assert all(name.startswith(f"test_row_{number}_") for name in names)


def has_test(path: str, name: str) -> bool:
    return (
        (ROOT / path).is_file() and name.split("::")[-1].startswith("test_") and defines(ROOT / path, name.split("::"))
    )
