"""The page for an operator: dead letters with what their attempts left, retry and purge, drains."""

from __future__ import annotations

import json
import time

from playwright.sync_api import Page, expect

from tasks.job import Job, JobError, JobStatus
from tasks.store import Outcome
from tasks.webhook_queue import WebhookQueue
from tests.e2e.page_stack import Stack


def kill(stack: Stack, prompt: str) -> Job:
    job = stack.submit(prompt)
    error = JobError(type="model_error", message="NaN in the <b>latents</b>", attempt=1)
    outcome = Outcome(JobStatus.FAILED, error=error, traceback="Traceback (most recent call last):\n  <i>boom</i>")
    stack.client.store.finish(job.id, stack.claim(job), outcome)
    return job


def test_dead_letters_are_read_retried_and_purged(page: Page, stack: Stack) -> None:
    retried, purged = kill(stack, "dies twice"), kill(stack, "dies once")
    page.get_by_role("link", name="System").click()
    letter = page.locator(".letter").filter(has_text="dies twice")
    letter.get_by_text("Attempts and tracebacks").click()
    expect(letter.locator("pre")).to_have_text("Traceback (most recent call last):\n  <i>boom</i>")
    expect(letter.get_by_text("NaN in the <b>latents</b>").first).to_be_visible()
    letter.get_by_role("button", name="Retry").click()
    expect(letter).to_be_hidden()
    again = next(job for job in stack.client.store.list().jobs if job.retry_of == retried.id)
    assert again.request == retried.request

    letter = page.locator(".letter").filter(has_text="dies once")
    letter.get_by_role("button", name="Purge").click()
    expect(letter).to_be_visible()
    letter.get_by_role("button", name="Click again to purge it").click()
    expect(letter).to_be_hidden()
    assert not {retried.id, purged.id} & set(stack.client.store.dead_letters())
    stack.client.abort(again.id)


def give_up(stack: Stack, prompt: str) -> str:
    """A job whose receiver refused for good, as the queue keeps it; a sender of the real worker is about."""
    job = stack.submit(prompt)
    stack.client.abort(job.id)
    letter = {"receiver": "https://hooks.example", "status": 410, "error": "status 410", "tries": 3}
    stack.client._redis.hset("safelight:webhook_letters", job.id, json.dumps(letter))
    stack.client._redis.zadd("safelight:webhooks_dead", {job.id: int(time.time() * 1000)})
    return job.id


def test_webhooks_are_delivered_again_and_purged(page: Page, stack: Stack) -> None:
    page.get_by_role("link", name="System").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(page.get_by_role("heading", name="Webhooks that were given up")).to_be_hidden()
    again, purged = give_up(stack, "told again"), give_up(stack, "never told")
    letter = page.locator(f"#undelivered [data-id='{again}']")
    expect(letter.get_by_text("status 410")).to_be_visible()
    expect(letter.get_by_role("heading", name="https://hooks.example")).to_be_visible()
    letter.get_by_role("button", name="Job").click()
    expect(page.get_by_role("dialog", name="told again")).to_be_visible()
    page.keyboard.press("Escape")
    letter.get_by_role("button", name="Deliver again").click()
    expect(letter).to_be_hidden()
    queue = WebhookQueue(stack.client._redis, stack.settings.key_prefix)
    assert queue.dead() == [purged]

    letter = page.locator(f"#undelivered [data-id='{purged}']")
    letter.get_by_role("button", name="Purge").click()
    letter.get_by_role("button", name="Click again to purge it").click()
    expect(page.get_by_role("heading", name="Webhooks that were given up")).to_be_hidden()
    assert queue.dead() == []


def test_a_worker_is_asked_to_drain(page: Page, stack: Stack) -> None:
    name = "played:1:abc"
    info = {"name": name, "host": "played", "state": "ready", "jobs": 0, "models": {}}
    assert stack.client.store.beat(name, info, 60) is False
    page.get_by_role("link", name="System").click()
    worker = page.locator(".worker").filter(has_text="played")
    worker.get_by_role("button", name="Drain").click()
    worker.get_by_role("button", name="Click again").click()
    expect(page.get_by_text("It takes no new job and stops when it has finished.")).to_be_visible()
    assert stack.client.store.beat(name, {**info, "state": "draining"}, 60) is True
    expect(worker.get_by_text("Draining")).to_be_visible()
    expect(worker.get_by_role("button", name="Drain")).to_be_hidden()
