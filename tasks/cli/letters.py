"""`safelight dead-letter` and `safelight webhooks`: what was given up, and what is to become of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tasks.cli import complete
from tasks.cli.connect import note, open_client
from tasks.cli.exits import FAILED
from tasks.cli.output import AsJson, outcome_of, print_json, shape_of, shortened
from tasks.errors import InvalidRequest, UnknownDeadLetter, UnknownJob, UnknownWebhook

if TYPE_CHECKING:
    from tasks.client import Client
    from tasks.dead_letters import DeadLetter, Fault

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_ALL_WEBHOOKS = 10_000


def seconds_of(text: str) -> float:
    """`90`, `90s`, `15m`, `2h`, `7d`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time; write 90, 90s, 15m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids that `ls` printed.")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="Only of this model.", autocompletion=complete.models),
]
ErrorKind = Annotated[str | None, typer.Option(metavar="TYPE", help="Only of this error, such as worker_lost.")]
Older = Annotated[
    float | None, typer.Option(parser=seconds_of, metavar="TIME", help="Only those that died so long ago: 15m, 2h, 7d.")
]
Newer = Annotated[
    float | None, typer.Option(parser=seconds_of, metavar="TIME", help="Only those that died since: 15m, 2h, 7d.")
]
All = Annotated[bool, typer.Option("--all", help="Every letter that the other options let through.")]
AllWebhooks = Annotated[bool, typer.Option("--all", help="Every one of the list.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")]


def dead_letter_ls(
    *,
    model: Model = None,
    error_type: ErrorKind = None,
    older_than: Older = None,
    newer_than: Newer = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List failed jobs that wait for an operator, newest first.

    \b
    Examples:
      safelight dead-letter ls --newer-than 1h
      safelight dead-letter ls --error-type worker_lost --json | jq -r .id
    """
    num_shown = 0
    with open_client() as client:
        for letter in _found(client, _filters(model, error_type, older_than, newer_than)):
            print_json(letter.to_json()) if as_json else print(_letter_line(letter))
            num_shown += 1
            if num_shown == limit:
                break
    if not num_shown:
        note("no dead letters" if not any((model, error_type, older_than, newer_than)) else "no such dead letters")


def dead_letter_show(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="An id that `ls` printed.")], *, as_json: AsJson = False
) -> None:
    """Show one: its request, and the worker, error and traceback of its last ten failed attempts.

    \b
    Example:
      safelight dead-letter show 01JZ8Q... --json | jq .job.request
    """
    with open_client() as client:
        letter = client.dead_letter(job_id)
    if as_json:
        print_json(letter.to_json(tracebacks=True))
        return
    print(_letter_line(letter))
    for name, value in letter.job.request.model_dump(mode="json", exclude_defaults=True).items():
        print(f"  {name}: {shortened(str(value), 200)}")
    for fault in letter.faults:
        _print_fault(fault)


def dead_letter_retry(
    job_ids: Ids = None,
    *,
    all_: All = False,
    model: Model = None,
    error_type: ErrorKind = None,
    older_than: Older = None,
    newer_than: Newer = None,
    as_json: AsJson = False,
) -> None:
    """Send the same resolved request again, as a new job that names its origin; the letter leaves the list.

    \b
    Exit code: 1 if any of them could not be retried.
    Examples:
      safelight dead-letter retry 01JZ8Q...
      safelight dead-letter retry --all --error-type upload_failed
    """
    filters = _filters(model, error_type, older_than, newer_than)
    with open_client() as client:

        def retry(job_id: str) -> None:
            job = client.retry_dead_letter(job_id)
            print_json(job.to_json()) if as_json else print(f"{job_id}  again as {job.id}")

        _for_each(_chosen(client, job_ids, all_, filters), retry)


def dead_letter_purge(
    job_ids: Ids = None,
    *,
    all_: All = False,
    model: Model = None,
    error_type: ErrorKind = None,
    older_than: Older = None,
    newer_than: Newer = None,
    as_json: AsJson = False,
) -> None:
    """Take letters off the list, seen to. Their jobs stay as long as any other.

    \b
    Examples:
      safelight dead-letter purge 01JZ8Q...
      safelight dead-letter purge --all --older-than 7d
    """
    filters = _filters(model, error_type, older_than, newer_than)
    with open_client() as client:

        def purge(job_id: str) -> None:
            if not client.purge_dead_letters([job_id]):
                raise UnknownDeadLetter(job_id)
            print_json({"id": job_id, "purged": True}) if as_json else print(f"{job_id}  purged")

        _for_each(_chosen(client, job_ids, all_, filters), purge)


def webhooks_ls(*, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List webhook deliveries that were given up, newest first, with the receiver's last answer.

    \b
    Example:
      safelight webhooks ls --json | jq -r 'select(.status == 503) | .id'
    """
    with open_client() as client:
        letters = client.webhook_letters(limit)
    for letter in letters:
        told = f"{letter.receiver or ''}  {shortened(letter.error, 120)}  after {letter.tries} tries"
        print_json(letter.to_json()) if as_json else print(f"{letter.id}  {letter.died_at:%Y-%m-%d %H:%M:%S}  {told}")
    if not letters:
        note("no webhook was given up")


def webhooks_retry(job_ids: Ids = None, *, all_: AllWebhooks = False, as_json: AsJson = False) -> None:
    """Deliver again, now, with all tries: the same webhook-id, so that the receiver sees a repetition as one.

    \b
    Exit code: 1 if any of them could not be retried.
    Example:
      safelight webhooks retry --all
    """
    with open_client() as client:

        def retry(job_id: str) -> None:
            client.retry_webhook(job_id)
            print_json({"id": job_id, "retried": True}) if as_json else print(f"{job_id}  to be delivered again")

        _for_each(_chosen_webhooks(client, job_ids, all_), retry)


def webhooks_purge(job_ids: Ids = None, *, all_: AllWebhooks = False, as_json: AsJson = False) -> None:
    """Forget deliveries that were given up.

    \b
    Example:
      safelight webhooks purge 01JZ8Q...
    """
    with open_client() as client:

        def purge(job_id: str) -> None:
            if not client.purge_webhooks([job_id]):
                raise UnknownWebhook(job_id)
            print_json({"id": job_id, "purged": True}) if as_json else print(f"{job_id}  purged")

        _for_each(_chosen_webhooks(client, job_ids, all_), purge)


def _filters(model: str | None, error_type: str | None, older: float | None, newer: float | None) -> dict[str, Any]:
    from tasks.job import ErrorType

    kinds = get_args(ErrorType)
    if error_type is not None and error_type not in kinds:
        raise typer.BadParameter(f"{error_type!r} is none of {', '.join(kinds)}", param_hint="--error-type")
    return {"model": model, "error_type": error_type, "older_than_s": older, "newer_than_s": newer}


def _found(client: Client, filters: dict[str, Any]) -> Iterator[DeadLetter]:
    cursor: str | None = None
    while True:
        page = client.dead_letters(**filters, limit=100, cursor=cursor)
        yield from page.letters
        cursor = page.cursor
        if cursor is None:
            return


def _chosen(client: Client, job_ids: Sequence[str] | None, is_all: bool, filters: dict[str, Any]) -> Iterator[str]:
    _check_choice(job_ids, is_all)
    if job_ids and any(value is not None for value in filters.values()):
        raise typer.BadParameter("filters go with --all, not with ids")
    return iter(job_ids) if job_ids else (letter.id for letter in _found(client, filters))


def _chosen_webhooks(client: Client, job_ids: Sequence[str] | None, is_all: bool) -> Iterator[str]:
    _check_choice(job_ids, is_all)
    return iter(job_ids) if job_ids else (letter.id for letter in client.webhook_letters(_ALL_WEBHOOKS))


def _check_choice(job_ids: Sequence[str] | None, is_all: bool) -> None:
    if bool(job_ids) == is_all:
        raise typer.BadParameter("name at least one id, or --all, and not both")


def _for_each(job_ids: Iterator[str], act: Callable[[str], None]) -> None:
    """One that cannot be done is told, and the others go on; exit code 1 then."""
    num_done = num_refused = 0
    for job_id in job_ids:
        try:
            act(job_id)
            num_done += 1
        except (UnknownDeadLetter, UnknownWebhook, UnknownJob, InvalidRequest) as error:
            note(f"safelight: {job_id}: {error}")
            num_refused += 1
    if not num_done and not num_refused:
        note("nothing to do")
    if num_refused:
        raise typer.Exit(FAILED)


def _letter_line(letter: DeadLetter) -> str:
    job = letter.job
    attempts = f"{job.attempt} attempts" if job.attempt != 1 else "1 attempt"
    parts = [letter.id, f"{letter.died_at:%Y-%m-%d %H:%M:%S}", job.request.model or "", shape_of(job), attempts]
    return "  ".join([*parts, outcome_of(job), f'"{shortened(job.request.prompt, 60)}"'])


def _print_fault(fault: Fault) -> None:
    where = f" on {fault.worker}" if fault.worker else ""
    print(f"\nattempt {fault.attempt}{where} at {fault.failed_at:%Y-%m-%d %H:%M:%S}: {fault.type}")
    print(f"  {shortened(fault.message, 2_000)}")
    for line in (fault.traceback or "").splitlines():
        print(f"  | {''.join(c if c.isprintable() else ' ' for c in line)}")
