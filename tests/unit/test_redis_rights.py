"""The rights that are asked for at the start are those that `docs/redis.md` grants."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.redis_rights import (
    Sample,
    acl_line,
    granting,
    missing_rights,
    producer_samples,
    unknown_commands,
    worker_samples,
)

LINE = re.compile(r"^ACL SETUSER .*$", re.MULTILINE)
#: What a connection needs before it sends anything of ours, and what is only looked at.
CONNECTING = {"hello", "ping", "select", "info"}
#: Asked for by none of the samples, as a worker gets along without.
FEED = {"client|id", "client|tracking", "subscribe"}


def documented() -> list[str]:
    [line] = LINE.findall((Path(__file__).parents[2] / "docs/redis.md").read_text("utf-8"))
    return str(line).split()


def test_the_documented_commands_are_those_we_send_and_no_others() -> None:
    sent = {sample.command for sample in worker_samples("safelight:", ["tiny"], ["safelight.submit"], 0)}
    granted = {word[1:] for word in documented() if word.startswith("+") and "@" not in word}
    assert granted | {"watch"} == sent | CONNECTING | FEED  # watch: of @transaction


def test_the_documented_line_is_the_one_that_the_doctor_prints() -> None:
    assert " ".join(documented()) == acl_line().replace("safelight ", "safelight on >PASSWORD ", 1)


def test_what_lacks_is_granted_in_the_words_of_the_line() -> None:
    missing = ["+xadd", "+multi", "~safelight:jobs", "~unacked_index", "~unacked", "~celery", "&/0.celery.pidbox"]
    words = granting(missing, "safelight:", ["safelight.submit", "celery"])
    assert words == ["+xadd", "+@transaction", "~safelight:*", "~unacked*", "~celery*", "&/0.celery.pidbox"]
    assert set(words) <= set(acl_line(submit_queues=["celery"]).split())


def test_a_command_that_no_user_has_is_no_right() -> None:
    refused = [(Sample(("xadd", "k"), "k"), "unknown command 'xadd', with args beginning with: 'k'")]
    assert (missing_rights(refused), unknown_commands(refused)) == ([], ["xadd"])


def test_a_producer_asks_for_less() -> None:
    producer = set(producer_samples("safelight:", ["tiny"]))
    assert producer < set(worker_samples("safelight:", ["tiny"], [], 0))
    assert not any(sample.key.startswith(("unacked", "_kombu", "/")) for sample in producer)


def test_what_is_missing_is_told_as_an_acl_spells_it() -> None:
    refused = [
        (Sample(("xadd", "safelight:jobs"), "safelight:jobs"), "User u has no permissions to run the 'xadd' command"),
        (Sample(("script", "load", "x")), "this user has no permissions to run the 'script' command or its subcommand"),
        (Sample(("lpush", "q\x06\x163"), "q\x06\x163"), "No permissions to access a key"),
        (Sample(("llen", "q"), "q"), "this user has no permissions to access one of the keys used as arguments"),
        (Sample(("psubscribe", "/0.x"), "/0.x"), "No permissions to access a channel"),
    ]
    assert missing_rights(refused) == ["+xadd", "+script|load", "~q", "&/0.x"]
