"""Calls of `operator.lua` as data: workers, dead letters, litter. As `store_codec`, shared by both Redis stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.beats import beats, serves
from tasks.dead_letters import DeadLetter, DeadLetterPage, LetterFilter, letter_of, parse_cursor
from tasks.errors import UnknownDeadLetter
from tasks.eta import speeds_of
from tasks.job_codec import decode_job, moment
from tasks.store import Drained
from tasks.store_codec import Argument, Call, snapshot


def beat(worker: str, info: Mapping[str, Any], ttl_s: float) -> Call[bool]:
    speeds = speeds_of(info)
    args: list[Argument] = [worker, json.dumps(dict(info)), int(ttl_s * 1000)]
    for model in info.get("models", {}):
        args += [model, speeds[model].encode() if model in speeds else ""]
    return Call("beat", [], args, bool)


def leave(worker: str) -> Call[None]:
    return Call("leave", [], [worker], lambda reply: None)


def workers() -> Call[list[Mapping[str, Any]]]:
    return Call("workers", [], [], lambda reply: [info for info in beats(reply) if serves(info)])


def drain(node: str | None) -> Call[Drained]:
    return Call("drain", [], [node or ""], lambda reply: Drained(*reply))


def dead_letters(limit: int) -> Call[list[str]]:
    return Call("dead_letters", [], [limit], list)


def drop_dead_letters(job_ids: Sequence[str]) -> Call[int]:
    return Call("drop_dead_letters", job_ids, job_ids, int)


def find_dead_letters(wanted: LetterFilter, limit: int, cursor: str | None) -> Call[DeadLetterPage]:
    parse_cursor(cursor)

    def decode(reply: Any) -> DeadLetterPage:
        return DeadLetterPage([_letter(died, record) for died, record in reply[1]], reply[0] or None)

    args: list[Argument] = [wanted.model or "", wanted.error_type or ""]
    args += ["" if age_s is None else int(age_s * 1000) for age_s in (wanted.older_than_s, wanted.newer_than_s)]
    return Call("letters", [], [*args, limit, cursor or ""], decode)


def dead_letter(job_id: str) -> Call[DeadLetter]:
    def decode(reply: Any) -> DeadLetter:
        if not reply:
            raise UnknownDeadLetter(job_id)
        return _letter(*reply)

    return Call("letter", [job_id], [job_id], decode)


def _letter(died: str, record: Sequence[Any], faults: Sequence[str] = ()) -> DeadLetter:
    died_at = moment(died)
    assert died_at is not None
    return letter_of(decode_job(snapshot(record)), died_at, faults)


def litter(limit: int, lease_s: float) -> Call[list[str]]:
    return Call("litter", [], [limit, int(lease_s * 1000)], list)


def swept(job_ids: Sequence[str]) -> Call[None]:
    return Call("swept", job_ids, job_ids, lambda reply: None)
