"""What the facts of a Redis mean for jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import redis

from tasks.connection import canonical_url, explain
from tasks.doctor import rights
from tasks.doctor.finding import Finding, fail, ok, size, skipped, span, warn
from tasks.doctor.probe.listener import Listener
from tasks.doctor.probe.redis import NoRedis, RedisFacts
from tasks.redis_fitness import OLDEST, doubtful, unfit, version_of

_FULL, _NEARLY_FULL = 0.95, 0.8
_SLOW_S = 0.02
_CLOCK_S = 2.0
_FSYNC = "CONFIG SET appendfsync everysec, and the same in redis.conf"
_NO_INFO = "INFO is withheld from this user"


def judge_redis(facts: RedisFacts | NoRedis, url: str) -> Iterator[Finding]:
    if isinstance(facts, NoRedis):
        yield from _out_of_reach(facts, url)
        return
    yield ok("redis.reach", f"{_product(facts.info)} at {facts.place}")
    yield ok("redis.login", f"user {facts.user}, {'with' if _password(url) else 'no'} password")
    yield _tls(facts, url)
    yield from _of_info(facts)
    yield _rights(facts)
    yield _latency(facts)
    yield _clock(facts)


def _of_info(facts: RedisFacts) -> Iterator[Finding]:
    if facts.info is None:
        for name in ("version", "role", "eviction", "memory", "persistence"):
            yield skipped(f"redis.{name}", _NO_INFO, f"ACL SETUSER {facts.user} +info")
        return
    yield _version(facts.info)
    yield _role(facts.info)
    yield _eviction(facts.info)
    yield _memory(facts.info)
    yield persistence(facts.info, facts.config)


# -- out of reach ------------------------------------------------------------------------------------------------------


def _out_of_reach(facts: NoRedis, url: str) -> Iterator[Finding]:
    error = facts.error
    text = " ".join(str(error).split())
    if isinstance(error, redis.AuthenticationError) or re.search(r"NOAUTH|WRONGPASS|Authentication required", text):
        yield ok("redis.reach", f"a server answers at {facts.place}")
        yield fail("redis.login", *_login(url, facts.place))
    elif "DB index" in text:
        yield ok("redis.reach", f"a server answers at {facts.place}")
        found = f"this Redis has no database {rights.database(url)}"
        yield fail("redis.login", found, "end SAFELIGHT_REDIS_URL in /0, or raise `databases` in redis.conf")
    elif facts.listener is not None and (said := _elsewhere(facts.listener, facts.place, url, text)):
        yield fail("redis.reach", *said)
    else:
        known = explain(error, facts.place) if isinstance(error, redis.RedisError | OSError) else None
        found, _, remedy = str(known or error).partition(": ")
        yield fail("redis.reach", found, remedy or "check SAFELIGHT_REDIS_URL")


def _elsewhere(listener: Listener, place: str, url: str, text: str) -> tuple[str, str] | None:
    wants_tls = url.startswith("rediss://")
    match listener:
        case "nobody":
            start = "start Redis there (`safelight up` runs one on this machine)"
            return f"nothing listens at {place}", f"{start}, or correct SAFELIGHT_REDIS_URL"
        case "unresolved":
            return f"the host name of {place} does not resolve", "correct the host in SAFELIGHT_REDIS_URL"
        case "no route":
            return f"{place} does not answer", "open the port in the firewall, or correct SAFELIGHT_REDIS_URL"
        case "silent":
            found = f"{place} accepts connections and says nothing"
            return found, "correct SAFELIGHT_REDIS_URL; if a Redis is there, look at its log: it hangs or is frozen"
        case "http":
            return f"a web server answers at {place}, not Redis", "correct the port in SAFELIGHT_REDIS_URL (often 6379)"
        case "tls" if not wants_tls:
            return f"{place} speaks TLS", "write rediss:// in SAFELIGHT_REDIS_URL"
        case "plain" if wants_tls:
            return f"{place} does not speak TLS", "write redis:// in SAFELIGHT_REDIS_URL, or give Redis a tls-port"
        case "tls" if "certificate" in text.lower():
            found = f"the certificate of {place} is not trusted ({_reason(text)})"
            return (
                found,
                "append ?ssl_ca_certs=/path/ca.pem to SAFELIGHT_REDIS_URL, and use the certificate's host name",
            )
    return None


def _reason(text: str) -> str:
    found = re.search(r"certificate verify failed: ([^(]+)", text)
    return found[1].strip() if found else text[:80]


def _login(url: str, place: str) -> tuple[str, str]:
    """Never shows the password."""
    login = _login_part(url)
    if not _password(url):
        user = login.partition(":")[0]
        shape = f"redis://{user}:PASSWORD@{place}/{rights.database(url)}"
        return f"Redis at {place} wants a password", f"SAFELIGHT_REDIS_URL={shape}"
    found = f"Redis at {place} refused user and password"
    remedy = "correct them in SAFELIGHT_REDIS_URL"
    if canonical_url(url) != url:
        found += ", which were read as they stand: they hold characters that a URL reserves"
        return found, f"{remedy}; write @ as %40, : as %3A, / as %2F, # as %23, % as %25"
    if re.search(r"%[0-9A-Fa-f]{2}", login):
        return found, f"{remedy}; what follows a % there was decoded: a % of the password itself is written %25"
    return found, f"{remedy} (redis://USER:PASSWORD@…; without an ACL user: redis://:PASSWORD@…)"


def _login_part(url: str) -> str:
    return url.partition("://")[2].rpartition("@")[0]


def _password(url: str) -> bool:
    return bool(_login_part(url).partition(":")[2])


# -- of INFO -----------------------------------------------------------------------------------------------------------


def _product(info: Mapping[str, Any] | None) -> str:
    if not info:
        return "Redis"
    if info.get("valkey_version"):
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', '')}".strip()


def _version(info: Mapping[str, Any]) -> Finding:
    version = version_of(info)
    if version == (0, 0):
        return warn("redis.version", "the server does not say its version", "use Redis 6.2 or newer, or Valkey")
    if version < OLDEST:
        return fail("redis.version", *(unfit({"redis_version": info["redis_version"]}) or ("", "")))
    return ok("redis.version", f"commands of Redis {info['redis_version']}")


def _role(info: Mapping[str, Any]) -> Finding:
    if str(info.get("cluster_enabled", "0")) == "1":
        return fail("redis.role", *(unfit({"cluster_enabled": 1}) or ("", "")))
    if info.get("role") == "slave":
        primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        return fail("redis.role", f"a read-only replica of {primary}", "point SAFELIGHT_REDIS_URL at the primary")
    return ok("redis.role", "primary, not a cluster")


def _eviction(info: Mapping[str, Any]) -> Finding:
    policy = {"maxmemory_policy": info.get("maxmemory_policy", "noeviction")}
    if fault := unfit(policy):
        return fail("redis.eviction", *fault)
    if doubt := doubtful(policy):
        return warn("redis.eviction", *doubt)
    return ok("redis.eviction", f"maxmemory-policy {policy['maxmemory_policy']}")


def _memory(info: Mapping[str, Any]) -> Finding:
    used, limit = float(info.get("used_memory", 0)), float(info.get("maxmemory", 0))
    machine = float(info.get("total_system_memory", 0))
    bound, what = (limit, "maxmemory") if limit else (machine, "the machine's memory (no maxmemory is set)")
    if not bound:
        return ok("redis.memory", f"{size(used)} used, no maxmemory")
    found = f"{size(used)} used of {size(bound)}, {what}"
    remedy = "raise maxmemory, or lower SAFELIGHT_RESULT_TTL_S so that records go earlier"
    if used >= _FULL * bound:
        return fail("redis.memory", f"{found}: new jobs are refused", remedy)
    return warn("redis.memory", found, remedy) if used >= _NEARLY_FULL * bound else ok("redis.memory", found)


def persistence(info: Mapping[str, Any], config: Mapping[str, str]) -> Finding:
    check = "redis.persistence"
    has_aof, remedy = str(info.get("aof_enabled", "0")) == "1", "CONFIG SET appendonly yes, and the same in redis.conf"
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("aof_last_bgrewrite_status", "ok") != "ok":
        return fail(check, "the append-only file cannot be written", "free space on Redis' disk, and look at its log")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return fail(check, "the last snapshot could not be written", "free space on Redis' disk, and look at its log")
    if has_aof and config.get("appendfsync") == "no":
        return warn(check, "the append-only file is never synced: a crash of the machine loses jobs", _FSYNC)
    if has_aof:
        synced = f", synced {config['appendfsync']}" if "appendfsync" in config else ""
        return ok(check, f"append-only file{synced}")
    if config.get("save", "unknown") == "":
        return warn(check, "nothing is written to disk: a restart of Redis loses every job", remedy)
    return warn(check, "snapshots only: a restart of Redis loses the newest jobs", remedy)


# -- the rest ----------------------------------------------------------------------------------------------------------


def _tls(facts: RedisFacts, url: str) -> Finding:
    if facts.tls is None:
        return ok("redis.tls", "not used")
    unverified = "ssl_cert_reqs=none" in url or "ssl_cert_reqs=CERT_NONE" in url
    if unverified:
        return warn("redis.tls", f"{facts.tls}, the certificate is not checked", "drop ssl_cert_reqs from the URL")
    return ok("redis.tls", f"{facts.tls}, certificate checked")


def _rights(facts: RedisFacts) -> Finding:
    refusals = facts.refusals
    if not refusals:
        return ok("redis.rights", f"user {facts.user} may do all that is needed")
    unknown = [rights.command(each.need) for each in refusals if "unknown command" in each.error]
    if unknown:
        found = f"the server does not know {', '.join(dict.fromkeys(unknown))}"
        return fail("redis.rights", found, "take back rename-command in redis.conf, or use Redis 6.2 or newer")
    words = rights.grant(refusals, facts.user).split()[3:]
    listed = ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")
    return fail("redis.rights", f"user {facts.user} lacks {listed}", rights.grant(refusals, facts.user))


def _latency(facts: RedisFacts) -> Finding:
    found = f"{span(facts.latency_s)} a round trip"
    if facts.latency_s > _SLOW_S:
        return warn("redis.latency", found, "put workers and API nearer to Redis: a job takes dozens of round trips")
    return ok("redis.latency", found)


def _clock(facts: RedisFacts) -> Finding:
    ahead = facts.clock_ahead_s
    sure_s = max(0.0, abs(ahead) - facts.clock_error_s)
    if sure_s <= _CLOCK_S:
        return ok("redis.clock", f"agrees with ours to {span(max(abs(ahead), facts.clock_error_s))}")
    found = f"Redis' clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return warn("redis.clock", found, "run NTP on both machines (timedatectl set-ntp true)")
