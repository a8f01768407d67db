"""What a receiver gets: one JSON message, signed as Standard Webhooks say, without the bytes of pictures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import pytest
import redis
from pydantic import SecretStr
from standardwebhooks import Webhook, WebhookVerificationError

from tasks.errors import ConfigError
from tasks.settings import Settings
from tasks.webhook_queue import WebhookQueue
from tasks.webhooks import WebhookSender, payload, signing_keys
from tests.integration.webhooks.conftest import KEY, SECRET, Jobs, Receiver, is_idle


def test_a_delivery_is_signed_as_the_standard_says(
    sender: WebhookSender, queue: WebhookQueue, jobs: Jobs, receiver: Receiver, client: redis.Redis
) -> None:
    queue.enqueue(jobs.add("J1"))
    assert sender.tick()
    assert not sender.tick()
    headers, body = receiver.got[0]
    assert headers["webhook-id"] == "msg_J1"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 10
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    wanted = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    message = Webhook(SECRET).verify(body.decode(), headers)  # the standard's own library
    assert message == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.decode().replace("J1", "J2"), headers)
    assert message["type"] == "job.succeeded"
    assert message["timestamp"] == "2026-01-31T12:00:00.000Z"
    assert message["data"] == jobs.get("J1").to_json()
    assert is_idle(client)


@pytest.mark.parametrize(
    ("secret", "keys"),
    [("", []), ("plain", [b"plain"]), (SECRET, [KEY]), (f"{SECRET} old", [KEY, b"old"])],
)
def test_secrets(secret: str, keys: list[bytes]) -> None:
    assert signing_keys(secret) == keys


@pytest.mark.parametrize("secret", ["whsec_***", "whsec_", "whsec_abc"])
def test_a_secret_that_is_none_stops_the_start(secret: str) -> None:
    with pytest.raises(ConfigError, match="SAFELIGHT_WEBHOOK_SECRET"):
        signing_keys(secret)


def test_signatures_of_an_old_and_a_new_secret_are_both_sent(
    queue: WebhookQueue, jobs: Jobs, receiver: Receiver, plain: Settings
) -> None:
    changed = plain.model_copy(update={"webhook_secret": SecretStr("new old")})
    queue.enqueue(jobs.add("J1"))
    WebhookSender(queue, jobs.get, changed).tick()
    assert [part[:3] for part in receiver.got[0][0]["webhook-signature"].split()] == ["v1,", "v1,"]


def test_pictures_are_not_sent_back(jobs: Jobs) -> None:
    jobs.add("J1", image="data:image/png;base64," + "A" * 10_000)
    body = payload(jobs.get("J1"))
    assert len(body) < 3000
    assert json.loads(body)["data"]["request"]["image"] == "data:image/png;base64,..."
