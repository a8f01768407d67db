"""What the facts of the broker mean: does it work, and does anybody else reach into our queues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tasks.broker_url import transport_options
from tasks.doctor.finding import Finding, fail, ok, skipped, span, warn
from tasks.doctor.probe.broker import BrokerFacts, is_own
from tasks.settings import Settings

_SEPARATOR = "\x06\x16"
_BINDING = re.compile(r"_kombu\.binding(?:_permanent)?\.(.+)")
_OF_KOMBU = re.compile(r"_kombu\..*|unacked(_index|_mutex)?|.*celery\.pidbox.*|celeryev.*")
#: Beyond the visibility timeout somebody should have put it back.
_MARGIN_S = 600.0
_OWN_DATABASE = "give Safelight a database of its own, as SAFELIGHT_REDIS_URL=redis://HOST:PORT/1"


def judge_broker(facts: BrokerFacts | Exception, settings: Settings) -> Iterator[Finding]:
    if isinstance(facts, Exception):
        text = " ".join(str(facts).split())[:160] or type(facts).__name__
        yield fail("broker.reach", f"Celery's transport cannot connect: {text}", "correct SAFELIGHT_REDIS_URL")
        return
    yield ok("broker.reach", "Celery's transport connects")
    yield _database(facts, settings)
    yield _visibility(facts, settings)
    yield _unacked(facts, _ours_s(settings))


def _database(facts: BrokerFacts, settings: Settings) -> Finding:
    check = "broker.database"
    if facts.keys is None:
        return skipped(check, "SCAN is withheld from this user: other systems' keys cannot be seen")
    if facts.other_prefixes:
        others = ", ".join(repr(prefix) for prefix in facts.other_prefixes[:3])
        found = (
            f"another Safelight (SAFELIGHT_KEY_PREFIX {others}) is in this database: each takes the other's messages"
        )
        return fail(check, found, _OWN_DATABASE)
    if queues := _foreign_queues(facts):
        found = f"another Celery app shares this database (queues {', '.join(queues[:3])}), and with it `unacked`"
        return warn(check, found, _OWN_DATABASE)
    foreign = [key for key in facts.keys if not _is_ours(key, facts, settings.key_prefix)]
    of = f"{_count(len(facts.keys), 'key')}{'' if facts.is_whole else ', a sample,'}"
    if foreign:
        shown = ", ".join(_printable(key) for key in foreign[:3])
        found = f"not Safelight's: {len(foreign)} of {of} such as {shown}"
        return warn(check, found, _OWN_DATABASE)
    return ok(check, f"{of} and all are Safelight's" if facts.keys else "empty")


def _foreign_queues(facts: BrokerFacts) -> list[str]:
    """Exchanges that some kombu has bound, and lists in its layout."""
    names = {found[1] for key in facts.keys or () if (found := _BINDING.fullmatch(key))}
    names |= {key.partition(_SEPARATOR)[0] for key in facts.keys or () if _SEPARATOR in key}
    return sorted(_printable(name) for name in names if not _is_known_queue(name, facts.own_queues))


def _is_known_queue(name: str, own: Sequence[str]) -> bool:
    return is_own(name, own) or "celery.pidbox" in name or name.startswith("celeryev")


def _is_ours(key: str, facts: BrokerFacts, prefix: str) -> bool:
    queue = key.partition(_SEPARATOR)[0]
    return key.startswith(prefix) or is_own(queue, facts.own_queues) or _OF_KOMBU.fullmatch(key) is not None


def _visibility(facts: BrokerFacts, settings: Settings) -> Finding:
    check, wanted_s = "broker.visibility", _ours_s(settings)
    if facts.consumers is None:
        return skipped(check, "this user may not ask the workers: see redis.rights")
    strangers = [each for each in facts.consumers if not each.name.startswith("safelight@")]
    if strangers:
        first = strangers[0]
        queues = ", ".join(queue for queue in first.queues if is_own(queue, facts.own_queues))
        found = f"{first.name}, no Safelight worker, takes messages from {queues}"
        if first.visibility_s not in (None, wanted_s):
            found += f" with a visibility timeout of {first.visibility_s:.0f} s instead of {wanted_s:.0f} s"
        return fail(check, found, f"start it without these queues (celery worker -Q …), or {_OWN_DATABASE}")
    others = [each for each in facts.consumers if each.visibility_s not in (None, wanted_s)]
    if others:
        found = f"{others[0].name} uses a visibility timeout of {others[0].visibility_s:.0f} s, we use {wanted_s:.0f} s"
        return warn(check, found, "run the same version of Safelight on every worker")
    return ok(check, f"timeout {wanted_s:.0f} s, {_count(len(facts.consumers), 'consumer')} of our queues")


def _unacked(facts: BrokerFacts, visibility_s: float) -> Finding:
    check, age_s = "broker.unacked", facts.oldest_unacked_s
    found = f"{_count(facts.num_unacked, 'message')} taken and not acknowledged"
    if age_s is None or age_s <= visibility_s + _MARGIN_S:
        return ok(check, found)
    found += f", the oldest for {span(age_s)}"
    return warn(check, found, "start a worker: it puts back what is older than the visibility timeout")


def _ours_s(settings: Settings) -> float:
    return float(transport_options(settings.redis_url)["visibility_timeout"])


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)[:60]
