"""What the answers of a Redis mean for jobs. What a start refuses and warns of is `redis_facts`' to say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import quote

import redis

from tasks.doctor.finding import Finding, fail, ok, size, skipped, span, warn
from tasks.doctor.probe.listener import Listener
from tasks.doctor.probe.redis import NoRedis, RedisAnswers
from tasks.redis_address import RedisAddress, parse_address
from tasks.redis_errors import explain
from tasks.redis_facts import RedisFacts, refused_for, warned_of
from tasks.redis_rights import Sample, acl_line, granting, missing_rights, unknown_commands
from tasks.settings import Settings

_FULL, _NEARLY_FULL = 0.95, 0.8
_SLOW_S = 0.02
_CLOCK_S = 2.0
#: Beyond so many words the whole line is easier to read.
_MAX_WORDS = 8
_FSYNC = "CONFIG SET appendfsync everysec, and the same in redis.conf"
#: As `where` ends.
_OVER_TLS = " over TLS"
_NO_INFO = "INFO is withheld from this user"


def judge_redis(
    answers: RedisAnswers | NoRedis, settings: Settings, producers: Collection[Sample]
) -> Iterator[Finding]:
    """The URL of the settings is one that can be read. `producers`: the samples that a client needs too."""
    address = parse_address(settings.redis_url)
    if isinstance(answers, NoRedis):
        yield from _out_of_reach(answers, address, settings.redis_url)
        return
    facts = answers.facts
    yield ok("redis.reach", f"{facts.product} {facts.own_version or ''}".strip() + f" at {facts.place}")
    yield ok("redis.login", f"user {answers.user}, {'with' if address.password else 'no'} password")
    yield _tls(answers, address)
    yield from _of_info(answers)
    yield _rights(answers, settings, producers)
    yield _latency(answers)
    yield _clock(answers)


def _of_info(answers: RedisAnswers) -> Iterator[Finding]:
    facts = answers.facts
    if facts.version is None:
        for name in ("version", "role", "eviction", "memory", "persistence"):
            yield skipped(f"redis.{name}", _NO_INFO, f"ACL SETUSER {answers.user} +info")
        return
    yield _version(facts)
    yield _role(facts)
    yield _known(facts, "eviction") or ok("redis.eviction", f"maxmemory-policy {facts.eviction or 'is not told'}")
    yield _memory(facts)
    yield persistence(facts, answers.config)


def _known(facts: RedisFacts, about: str) -> Finding | None:
    """What worker and API refuse, or warn of, at the start."""
    for judge, told in ((refused_for, fail), (warned_of, warn)):
        for fault in judge(facts):
            if fault.about == about:
                return told(f"redis.{about}", fault.found, fault.remedy)
    return None


# -- out of reach ------------------------------------------------------------------------------------------------------


def _out_of_reach(answers: NoRedis, address: RedisAddress, url: str) -> Iterator[Finding]:
    error, place = answers.error, answers.place
    text = " ".join(str(error).split())
    if isinstance(error, redis.AuthenticationError) or re.search(r"NOAUTH|WRONGPASS|Authentication required", text):
        yield ok("redis.reach", f"a server answers at {place}")
        yield fail("redis.login", *_login(address, url, place))
    elif "DB index" in text:
        yield ok("redis.reach", f"a server answers at {place}")
        found = f"this Redis has no database {address.db}"
        yield fail("redis.login", found, "end SAFELIGHT_REDIS_URL in /0, or raise `databases` in redis.conf")
    elif answers.listener is not None and (
        said := _elsewhere(answers.listener, place.removesuffix(_OVER_TLS), address)
    ):
        yield fail("redis.reach", *said)
    else:
        known = explain(error, place) if isinstance(error, redis.RedisError | OSError) else None
        found, colon, remedy = (str(known) if known else "").rpartition(": ")
        yield fail("redis.reach", *((found, remedy) if colon else (text, "check SAFELIGHT_REDIS_URL")))


def _elsewhere(listener: Listener, place: str, address: RedisAddress) -> tuple[str, str] | None:
    wants_tls = address.tls is not None
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
    return None


def _login(address: RedisAddress, url: str, place: str) -> tuple[str, str]:
    """Never shows the password."""
    password = address.password
    if not password:
        shape = "as redis://USER:PASSWORD@…"
        if address.kind == "tcp":
            scheme, user = "rediss" if address.tls else "redis", quote(address.username or "", safe="")
            shape = f"{scheme}://{user}:PASSWORD@{place.removesuffix(_OVER_TLS)}/{address.db}"
        return f"Redis at {place} wants a password", f"SAFELIGHT_REDIS_URL={shape}"
    found = f"Redis at {place} refused user and password"
    remedy = "correct them in SAFELIGHT_REDIS_URL"
    if password not in url:
        return found, f"{remedy}; what follows a % there was decoded: a % of the password itself is written %25"
    if quote(password, safe="!$&'()*+,;=") != password:
        found += ", which were read as they stand: they hold characters that a URL reserves"
        return found, f"{remedy}; write @ as %40, : as %3A, / as %2F, # as %23, % as %25"
    return found, f"{remedy} (redis://USER:PASSWORD@…; without an ACL user: redis://:PASSWORD@…)"


# -- of INFO -----------------------------------------------------------------------------------------------------------


def _version(facts: RedisFacts) -> Finding:
    return _known(facts, "version") or ok("redis.version", f"commands of Redis {facts.version}")


def _role(facts: RedisFacts) -> Finding:
    if facts.replica_of:
        found = f"is a read-only replica of {facts.replica_of}"
        return fail("redis.role", found, "point SAFELIGHT_REDIS_URL at the primary")
    return _known(facts, "role") or ok("redis.role", "primary, not a cluster")


def _memory(facts: RedisFacts) -> Finding:
    used, limit = facts.used_bytes or 0, facts.maxmemory_bytes or 0
    bound, what = limit or facts.machine_bytes, "maxmemory" if limit else "the machine's memory (no maxmemory is set)"
    if not bound:
        return ok("redis.memory", f"{size(used)} used, no maxmemory")
    found = f"{size(used)} used of {size(bound)}, {what}"
    remedy = "raise maxmemory, or lower SAFELIGHT_RESULT_TTL_S so that records go earlier"
    if used >= _FULL * bound:
        return fail("redis.memory", f"{found}: new jobs are refused", remedy)
    return warn("redis.memory", found, remedy) if used >= _NEARLY_FULL * bound else ok("redis.memory", found)


def persistence(facts: RedisFacts, config: Mapping[str, str]) -> Finding:
    check = "redis.persistence"
    if facts.unwritten:
        found = f"the last {facts.unwritten} could not be written"
        return fail(check, found, "free space on Redis' disk, and look at its log")
    if known := _known(facts, "persistence"):
        snapshots = "snapshots alone lose the newest" if config.get("save", "?") else "nothing is written to disk"
        return warn(check, f"{known.found} ({snapshots})", known.remedy)
    if config.get("appendfsync") == "no":
        return warn(check, "the append-only file is never synced: a crash of the machine loses jobs", _FSYNC)
    synced = f", synced {config['appendfsync']}" if "appendfsync" in config else ""
    return ok(check, f"append-only file{synced}")


# -- the rest ----------------------------------------------------------------------------------------------------------


def _tls(answers: RedisAnswers, address: RedisAddress) -> Finding:
    if answers.tls is None:
        return ok("redis.tls", "not used")
    checks = address.tls or {}
    if checks.get("ssl_cert_reqs") == "none":
        return warn("redis.tls", f"{answers.tls}, the certificate is not checked", "drop ssl_cert_reqs from the URL")
    if not checks.get("ssl_check_hostname"):
        found = f"{answers.tls}, a certificate for any host is taken"
        return warn("redis.tls", found, "drop ssl_check_hostname from the URL, and use the certificate's host name")
    return ok("redis.tls", f"{answers.tls}, certificate checked")


def _rights(answers: RedisAnswers, settings: Settings, producers: Collection[Sample]) -> Finding:
    check, user = "redis.rights", answers.user
    if unknown := unknown_commands(answers.refused):
        found = f"the server does not know {', '.join(unknown)}"
        return fail(check, found, "take back rename-command in redis.conf, or use Redis 6.2 or newer")
    prefix, queues = settings.key_prefix, settings.submit_queue_names
    lacking = granting(missing_rights(answers.refused), prefix, queues)
    if not lacking:
        return ok(check, f"user {user} may do all that is needed")
    listed = ", ".join(lacking[:4]) + (f" and {len(lacking) - 4} more" if len(lacking) > 4 else "")
    line = f"ACL SETUSER {user} {' '.join(lacking)}"
    if len(lacking) > _MAX_WORDS:
        line = acl_line(user, prefix, queues, parse_address(settings.redis_url).db)
    if any(sample in producers or sample.command == "multi" for sample, _ in answers.refused):
        return fail(check, f"user {user} lacks {listed}", line)
    return warn(check, f"user {user} may do what API and clients do; for a worker it lacks {listed}", line)


def _latency(answers: RedisAnswers) -> Finding:
    found = f"{span(answers.latency_s)} a round trip"
    if answers.latency_s > _SLOW_S:
        return warn("redis.latency", found, "put workers and API nearer to Redis: a job takes dozens of round trips")
    return ok("redis.latency", found)


def _clock(answers: RedisAnswers) -> Finding:
    ahead = answers.clock_ahead_s
    sure_s = max(0.0, abs(ahead) - answers.clock_error_s)
    if sure_s <= _CLOCK_S:
        return ok("redis.clock", f"agrees with ours to {span(max(abs(ahead), answers.clock_error_s))}")
    found = f"Redis' clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return warn("redis.clock", found, "run NTP on both machines (timedatectl set-ntp true)")
