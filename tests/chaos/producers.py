"""Four producers that send the planned jobs through all faults, and what each learned of every job."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx

from tasks import Client
from tasks.errors import QueueFull, SafelightError, StoreUnavailable
from tests.chaos.plan import NUM_PRODUCERS, PlannedJob
from tests.chaos.processes import Processes, key_of

log = logging.getLogger(__name__)
_TRIES, _PAUSE_S, _HTTP_TIMEOUT_S = 6, 0.7, 8.0
_THREADS = 6


class Unclear(Exception):
    """No answer, or one that leaves open whether it was done."""


@dataclass
class Ticket:
    """What a producer knows of a job. Its id is known from the first answer, or by id."""

    planned: PlannedJob
    ids: set[str] = field(default_factory=set)
    num_sent: int = 0
    num_accepted: int = 0
    num_unclear: int = 0
    num_aborts: int = 0
    #: Answers that no fault explains.
    wrong: list[str] = field(default_factory=list)

    @property
    def job_id(self) -> str | None:
        return self.planned.name if self.planned.by_id else next(iter(self.ids), None)


class HttpProducer:
    """Sends to the first API that answers."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._http = httpx.Client(timeout=_HTTP_TIMEOUT_S, trust_env=False)

    def submit(self, planned: PlannedJob) -> str:
        reply = self._post("/v1/jobs", planned.tenant, {"Idempotency-Key": planned.name}, json=planned.body)
        if reply.status_code not in (200, 202):
            raise AssertionError(f"POST /v1/jobs: {reply.status_code} {reply.text[:200]}")
        return str(reply.json()["id"])

    def abort(self, job_id: str, tenant: str) -> None:
        reply = self._post(f"/v1/jobs/{job_id}/abort", tenant, {})
        if reply.status_code not in (200, 202):
            raise AssertionError(f"abort: {reply.status_code} {reply.text[:200]}")

    def _post(self, path: str, tenant: str, headers: dict[str, str], **what: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key_of(tenant)}", **headers}
        self._urls = [*self._urls[1:], self._urls[0]]
        for url in list(self._urls):
            try:
                reply = self._http.post(url + path, headers=headers, **what)  # type: ignore[arg-type]
            except httpx.ConnectError:
                continue
            except httpx.HTTPError as error:
                raise Unclear(repr(error)) from error
            if reply.status_code in (429, 500, 503):
                if reply.status_code == 500:
                    raise AssertionError(f"{path}: 500 {reply.text[:200]}")
                raise Unclear(f"{reply.status_code}")
            return reply
        raise Unclear("no API")

    def close(self) -> None:
        self._http.close()


class LibraryProducer:
    """`tasks.Client`, as a backend embeds it."""

    def __init__(self, processes: Processes) -> None:
        self._client = Client(processes.producers)

    def submit(self, planned: PlannedJob) -> str:
        handle = {"job_id": planned.name} if planned.by_id else {"idempotency_key": planned.name}
        return self._asked(lambda: self._client.submit(planned.body, tenant=planned.tenant, **handle).id)  # type: ignore[arg-type]

    def abort(self, job_id: str, tenant: str) -> None:
        self._asked(lambda: self._client.abort(job_id).id)

    def _asked(self, call: Callable[[], str]) -> str:
        try:
            return call()
        except (StoreUnavailable, QueueFull) as error:
            raise Unclear(str(error)) from error
        except SafelightError as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._client.close()


Producer = HttpProducer | LibraryProducer


def _deliver(producer: Producer, ticket: Ticket) -> None:
    planned = ticket.planned
    for number in range(_TRIES):
        ticket.num_sent += 1
        try:
            ticket.ids.add(producer.submit(planned))
            ticket.num_accepted += 1
        except Unclear:
            ticket.num_unclear += 1
            if not planned.resend:
                break
            time.sleep(_PAUSE_S * (1 + number))
            continue
        if not planned.resend or ticket.num_accepted == 2:
            break
        time.sleep(_PAUSE_S)
    if planned.abort_after_s is not None and ticket.job_id is not None:
        _abort(producer, ticket, ticket.job_id, planned.abort_after_s)


def _abort(producer: Producer, ticket: Ticket, job_id: str, after_s: float) -> None:
    time.sleep(after_s)
    for _ in range(3):
        ticket.num_aborts += 1
        try:
            producer.abort(job_id, ticket.planned.tenant)
            break
        except Unclear:
            time.sleep(_PAUSE_S)
        except AssertionError:
            if ticket.num_accepted:  # else it may not be there at all
                raise


class Producers:
    """Send each job at its time, from some threads a producer."""

    def __init__(self, processes: Processes, jobs: tuple[PlannedJob, ...]) -> None:
        self._processes = processes
        self.tickets = [Ticket(planned) for planned in jobs]
        self._lock = threading.Lock()

    @contextmanager
    def sending(self, began: float) -> Iterator[None]:
        """All sent when it ends, or given up."""
        with ExitStack() as stack:
            producers: list[Producer] = []
            for number in range(NUM_PRODUCERS):
                producer = LibraryProducer(self._processes) if number % 2 else HttpProducer(self._processes.api_urls())
                stack.callback(producer.close)
                producers.append(producer)
            pools = [stack.enter_context(ThreadPoolExecutor(_THREADS)) for _ in producers]
            sender = threading.Thread(target=self._send_all, args=(began, producers, pools), daemon=True)
            sender.start()
            yield
            sender.join()

    def _send_all(self, began: float, producers: list[Producer], pools: list[ThreadPoolExecutor]) -> None:
        for ticket in self.tickets:
            time.sleep(max(0.0, began + ticket.planned.at_s - time.monotonic()))
            number = ticket.planned.producer
            pools[number].submit(self._deliver_safely, producers[number], ticket)

    def _deliver_safely(self, producer: Producer, ticket: Ticket) -> None:
        try:
            _deliver(producer, ticket)
        except Exception as error:
            ticket.wrong.append(f"{type(error).__name__}: {error}")
