"""Tells webhooks how jobs ended (standardwebhooks.com), from a queue of its own and never in the path of a run."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime

import httpx

from tasks.errors import ConfigError, SafelightError, StoreUnavailable, UnknownJob
from tasks.job import Job, rfc3339
from tasks.logs import about
from tasks.redaction import mask
from tasks.settings import Settings
from tasks.ssrf import Deadline, ForbiddenAddress, GuardedTransport, UnknownHost
from tasks.webhook_queue import Delivery, Refusal, WebhookQueue

log = logging.getLogger(__name__)

DELIVERY_TIMEOUT_S = 15.0
_LEASE_S = 60.0
_MAX_DATA_URI = 256
_MAX_ERROR = 500
#: The receiver's word for: never again.
GONE = 410


def signing_keys(secret: str) -> list[bytes]:
    """`whsec_` and base64, or any other text as it is; several, separated by spaces, while a secret is replaced."""
    keys = []
    for part in secret.split():
        try:
            encoded = part.removeprefix("whsec_")
            keys.append(part.encode() if encoded == part else base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            raise ConfigError("SAFELIGHT_WEBHOOK_SECRET: what follows whsec_ is not base64") from None
        if not keys[-1]:
            raise ConfigError("SAFELIGHT_WEBHOOK_SECRET: the secret is empty")
    return keys


def signature(keys: list[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and base64 of HMAC-SHA256 over `id.timestamp.body`, one for each key."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join("v1," + base64.b64encode(digest).decode("ascii") for digest in digests)


def payload(job: Job) -> bytes:
    """`{type: job.STATUS, timestamp, data: Job}`. Pictures that came as data: URIs are not sent back in full."""
    data = job.to_json()
    for field in ("image", "mask_image"):
        uri = data["request"].get(field)
        if uri and uri.startswith("data:") and len(uri) > _MAX_DATA_URI:
            data["request"][field] = uri[:_MAX_DATA_URI].partition(",")[0] + ",..."
    moment = job.finished_at or datetime.now(UTC)
    message = {"type": f"job.{job.status}", "timestamp": rfc3339(moment), "data": data}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class WebhookSender:
    """Threads that deliver what is due, between `start` and `stop`. A receiver may get a message twice: same id."""

    def __init__(
        self,
        queue: WebhookQueue,
        get_job: Callable[[str], Job],
        settings: Settings,
        *,
        num_threads: int = 4,
        poll_s: float = 1.0,
    ) -> None:
        self._queue = queue
        self._get_job = get_job
        secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
        self._keys = signing_keys(secret)
        self._transport = GuardedTransport(allow_private=settings.allow_private_urls)
        self._poll_s = poll_s
        self._stop = threading.Event()
        #: Held by the one thread that looks for what is due; it lets the next one look while it delivers.
        self._looking = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"webhook-sender-{number}", daemon=True)
            for number in range(num_threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """A delivery under way that does not end in time is repeated by whoever comes next."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def tick(self) -> bool:
        """Deliver what is due first; False if nothing was. Raises `StoreUnavailable`."""
        found = self._queue.due(1, _LEASE_S)
        for delivery in found:
            self._deliver(delivery)
        return bool(found)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._looking:
                found = self._wait()
            try:
                for delivery in found:
                    self._deliver(delivery)
            except StoreUnavailable as error:
                log.warning("webhooks wait: %s", error)
            except Exception:
                log.exception("webhooks: unexpected error; the delivery is repeated when its lease ends")

    def _wait(self) -> Sequence[Delivery]:
        """What is due first, waited for; nothing at a stop."""
        outage = False
        while not self._stop.is_set():
            try:
                if found := self._queue.due(1, _LEASE_S):
                    return found
                outage = False
            except StoreUnavailable as error:
                if not outage:  # an outage is told once
                    log.warning("webhooks wait: %s", error)
                outage = True
            except Exception:
                log.exception("webhooks: unexpected error; it goes on")
            self._stop.wait(self._poll_s)
        return ()

    def _deliver(self, delivery: Delivery) -> None:
        try:
            job = self._get_job(delivery.job_id)
        except UnknownJob:
            log.warning("webhook of job %s: its record has expired; given up", delivery.job_id)
            self._queue.bury(delivery, Refusal(error="the job's record has expired"))
            return
        with about(job_id=job.id, attempt=job.attempt, model=job.request.model):
            self._deliver_end(delivery, job)

    def _deliver_end(self, delivery: Delivery, job: Job) -> None:
        url = job.request.webhook_url
        if url is None or not job.status.is_terminal:
            self._queue.done(delivery)
            return
        refusal, is_final = self._post(url, job)
        if refusal is None:
            self._queue.done(delivery)
        elif is_final:
            log.error("webhook of job %s: can never be delivered (%s); it is a dead letter now", job.id, refusal.error)
            self._queue.bury(delivery, refusal)
        elif not self._queue.retry(delivery, refusal):
            log.error("webhook of job %s: given up (%s); it is a dead letter now", job.id, refusal.error)
        else:
            level = logging.WARNING if refusal.status in (401, 403) else logging.INFO  # another secret, as a rule
            log.log(level, "webhook of job %s: not delivered (%s), to be tried again", job.id, refusal.error)

    def _post(self, url: str, job: Job) -> tuple[Refusal | None, bool]:
        """None if it was delivered; else why not, and whether that is final."""
        body, message_id, timestamp = payload(job), f"msg_{job.id}", int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "safelight",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
        }
        if self._keys:
            headers["webhook-signature"] = signature(self._keys, message_id, timestamp, body)
        try:
            with Deadline(DELIVERY_TIMEOUT_S) as deadline:
                request = httpx.Request("POST", url, headers=headers, content=body, extensions=deadline.extensions)
                with closing(self._transport.handle_request(request)) as reply:
                    status = reply.status_code
        except (httpx.HTTPError, httpx.InvalidURL, SafelightError, OSError) as error:
            text = mask(f"{type(error).__name__}: {error}")[:_MAX_ERROR]
            return Refusal(_origin(url), None, text), _is_final(error)
        if 200 <= status < 300:
            return None, True
        return Refusal(_origin(url), status, f"status {status}"), status == GONE


def _is_final(error: Exception) -> bool:
    """A forbidden address stays forbidden until an operator changes a setting; a name may be known tomorrow."""
    is_forbidden = isinstance(error, ForbiddenAddress) and not isinstance(error, UnknownHost)
    return is_forbidden or isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol)


def _origin(url: str) -> str | None:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return None
    return f"{parts.scheme}://{parts.host}" + (f":{parts.port}" if parts.port else "")
