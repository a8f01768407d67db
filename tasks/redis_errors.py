"""What a failed command means for us, in one line that says where and what to try. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import redis

from tasks.errors import SafelightError, StoreFull, StoreUnavailable

_URL = "SAFELIGHT_REDIS_URL"
#: The first that is found in the error's text wins; `{place}` and `{text}` are filled in.
_MEANINGS: Sequence[tuple[str, str]] = (
    (
        r"NOAUTH|WRONGPASS|invalid username-password|without any password configured",
        "Redis at {place} refused the login: check user and password in " + _URL,
    ),
    (r"READONLY", "Redis at {place} is a read-only replica: point " + _URL + " at the primary"),
    (r"DENIED", "Redis at {place} is in protected mode: give it a password, or set protected-mode no"),
    (r"NOPERM", "Redis at {place} denies this user a command or key ({text}): extend its ACL, see docs/redis.md"),
    (
        r"NOREPLICAS",
        "Redis at {place} takes no writes ({text}): bring its replicas back, or lower min-replicas-to-write",
    ),
    (
        r"\b(LOADING|MISCONF|CLUSTERDOWN|MASTERDOWN|BUSY)\b",
        "Redis at {place} cannot serve now ({text}): try again, and look at its log",
    ),
    (r"\bMOVED\b|CROSSSLOT|non local key", "Redis at {place} is a node of a Redis Cluster ({text}): see docs/redis.md"),
    (
        r"CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE",
        "Redis at {place} wants a client's certificate: name it by ssl_certfile and ssl_keyfile in " + _URL,
    ),
    (
        r"TLSV1_ALERT_UNKNOWN_CA|ALERT_(BAD|UNKNOWN|EXPIRED)_?CERT",
        "Redis at {place} does not accept our certificate: check ssl_certfile in " + _URL + " against the server's CA",
    ),
    (
        r"(Hostname|IP address) mismatch|doesn't match",
        "the certificate of Redis at {place} is for another name ({text}): use that name in " + _URL,
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        "the certificate of Redis at {place} is not trusted ({text}): name its CA by ssl_ca_certs in " + _URL,
    ),
    (
        r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE",
        "Redis at {place} does not speak TLS: begin " + _URL + " with redis://, or use its TLS port",
    ),
    (
        r"\[X509|\[PEM|KEY_VALUES_MISMATCH|PEM lib",
        "a certificate for Redis at {place} cannot be used ({text}): check ssl_ca_certs, ssl_certfile, ssl_keyfile in "
        + _URL,
    ),
    (
        # TLS 1.3 refuses a client after its handshake: what was sent meanwhile may fail before the reason is read.
        r"EOF occurred in violation of protocol",
        "Redis at {place} ended the TLS connection: it wants a client's certificate, or does not accept ours: check "
        "ssl_certfile and ssl_keyfile in " + _URL,
    ),
    (
        r"closed by server|Connection reset",
        "Redis at {place} closed the connection ({text}): it may be restarting, speak TLS only (rediss:// in "
        + _URL
        + "), or want a client's certificate (ssl_certfile)",
    ),
    (
        r"No master found",
        "no sentinel of {place} knows that primary ({text}): check hosts, master_name and sentinel_password in " + _URL,
    ),
)


def explain(error: redis.RedisError | OSError, place: str) -> SafelightError | None:
    """What a failed command means for us, in one line; None: a fault of our own, to be raised as it is."""
    text = " ".join(str(error).split())
    if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM command not allowed" in text:
        return StoreFull(f"Redis at {place} has reached its maxmemory: wait for results to expire, or raise maxmemory")
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, _named(error, text)):
            return StoreUnavailable(meaning.format(place=place, text=text))
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        return StoreUnavailable(
            f"cannot reach Redis at {place} ({text}): is it running? Check {_URL}, or run `safelight up`"
        )
    return None


def _named(error: Exception, text: str) -> str:
    """The text with the word that redis-py has turned into a type."""
    names: Sequence[tuple[Any, str]] = (
        (redis.AuthenticationError, "WRONGPASS"),
        (redis.ReadOnlyError, "READONLY"),
        (redis.exceptions.NoPermissionError, "NOPERM"),
        (redis.BusyLoadingError, "LOADING"),
        (redis.exceptions.MasterDownError, "MASTERDOWN"),
        (redis.exceptions.MovedError, "MOVED"),
        (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    )
    return " ".join([*(word for kind, word in names if isinstance(error, kind)), text])
