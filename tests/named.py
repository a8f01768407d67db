"""Names of tests and of code that a page of the documentation points to: whether they are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
NAME = re.compile(r"`((?:engine|worker)(?:\.\w+)+)`")


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


def has_test(path: str, name: str) -> bool:
    return (
        (ROOT / path).is_file() and name.split("::")[-1].startswith("test_") and defines(ROOT / path, name.split("::"))
    )


def missing(text: str) -> list[str]:
    """Those that `text` names and that are not there."""
    return [f"{path}::{name}" for path, name in TEST.findall(text) if not has_test(path, name)] + [
        name for name in NAME.findall(text) if not has(name)
    ]
