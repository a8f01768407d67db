"""`docs/step-mode.md` has its 18 rows, and all that it points to is in the repository."""

from __future__ import annotations

import re
import tomllib

from tests.named import ROOT, TEST, missing

PAGE = (ROOT / "docs/step-mode.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def test_each_row_has_a_test_that_is_there() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 19))
    assert missing(PAGE) == []
    assert all(TEST.search(shown) and not TEST.sub("", shown).strip(", ") for *_, shown in ROWS)


def test_greenlet_is_required() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = wanted.get("optional-dependencies", {})
    assert any(one.startswith("greenlet") for one in [*wanted["dependencies"], *extras.get("worker", ())])
