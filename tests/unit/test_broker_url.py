"""Options of the broker's connection that decide who is served."""

from __future__ import annotations

import pytest
from kombu.utils.scheduling import cycle_by_name

from tasks.app import make_app
from tasks.broker_url import transport_options
from tasks.settings import Settings


def test_models_of_one_node_take_turns() -> None:
    queues = cycle_by_name(transport_options("redis://localhost")["queue_order_strategy"])()
    queues.update(["safelight.a", "safelight.b"])
    queues.rotate("safelight.a")
    assert queues.consume(2) == ["safelight.b", "safelight.a"]


def test_who_inspects_the_configuration_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """`celery inspect conf`, as `safelight doctor` asks it, hides passwords by way of connections."""
    app = make_app(Settings(redis_url="redis://:hunter2@127.0.0.1:6379/0"))
    shown = app.conf.table(with_defaults=True)
    assert "hunter2" not in str(shown)
    assert caplog.records == []
