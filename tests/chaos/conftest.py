"""The longest test of all waits most of its time: it goes first, so that others run beside it and none waits for it."""

from __future__ import annotations

import pytest

_FIRST = "test_a_minute_of_chaos_breaks_no_rule"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.name != _FIRST)
