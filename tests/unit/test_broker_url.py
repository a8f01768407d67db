"""Options of the broker's connection that decide who is served."""

from __future__ import annotations

from kombu.utils.scheduling import cycle_by_name

from tasks.broker_url import transport_options


def test_models_of_one_node_take_turns() -> None:
    queues = cycle_by_name(transport_options("redis://localhost")["queue_order_strategy"])()
    queues.update(["safelight.a", "safelight.b"])
    queues.rotate("safelight.a")
    assert queues.consume(2) == ["safelight.b", "safelight.a"]
