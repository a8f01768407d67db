"""The Celery app: settings that survive faults of the broker, and names. Tasks are registered by the worker."""

from __future__ import annotations

from celery import Celery

from tasks.broker_queues import GENERATE, SUBMIT, queue_for
from tasks.broker_url import broker_tls, broker_url, transport_options
from tasks.settings import Settings

__all__ = ["GENERATE", "SUBMIT", "make_app", "queue_for"]


def make_app(settings: Settings) -> Celery:
    """A new app over the settings' Redis; it connects at first use."""
    url = broker_url(settings.redis_url)
    app = Celery("safelight", broker=url, set_as_current=False)
    app.conf.update(
        # The same, said outright: who inspects the configuration makes kombu warn of a URL without a host otherwise.
        broker_read_url=url,
        broker_write_url=url,
        broker_use_ssl=broker_tls(settings.redis_url),
        broker_transport_options=transport_options(settings.redis_url),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        task_default_queue=SUBMIT,
        task_routes={SUBMIT: {"queue": SUBMIT}},
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=True,
        task_acks_on_failure=True,
        task_acks_on_timeout=True,
        task_publish_retry_policy={"max_retries": 3, "interval_max": 1},
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_prefetch_count_reduction=False,
        worker_soft_shutdown_timeout=0,
    )
    return app
