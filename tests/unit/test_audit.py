"""`deploy/audit.py`: a known vulnerability fails the check, a service that is away does not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "audit.py"
spec = importlib.util.spec_from_file_location("audit", SCRIPT)
assert spec is not None and spec.loader is not None
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)

FOUND = {"id": "GHSA-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}


def report(*vulns: object) -> str:
    sound = {"name": "b", "version": "1", "vulns": []}
    return json.dumps({"dependencies": [{"name": "a", "version": "2.0", "vulns": list(vulns)}, sound], "fixes": []})


def test_a_finding_fails_and_says_what_helps() -> None:
    text, code = audit.verdict(report(FOUND), "Found 1 known vulnerability", {})
    assert (text, code) == ("a 2.0: GHSA-1, fixed in 2.1", 1)


@pytest.mark.parametrize("name", ["GHSA-1", "CVE-1"])
def test_one_that_is_ignored_by_any_of_its_names_does_not(name: str) -> None:
    text, code = audit.verdict(report(FOUND), "", {name: "we never call it"})
    assert code == 0 and "1 ignored" in text
    assert audit.verdict(report(FOUND, {"id": "PYSEC-2"}), "", {name: "we never call it"})[1] == 1


def test_nothing_found() -> None:
    assert audit.verdict(report(), "", {}) == ("no known vulnerabilities", 0)


@pytest.mark.parametrize("answer", ["", "<html>", "[]", "{}"])
def test_a_service_that_is_away_is_told_and_fails_nothing(answer: str) -> None:
    text, code = audit.verdict(answer, "ERROR\nname or service not known\n", {})
    assert code == 0
    assert text.startswith("note: ") and "name or service not known" in text
