"""The demo from start to end. Wiring and words; what is asked, done and judged lies in the files beside it."""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from PIL import Image

from tasks.cli.board import board_for
from tasks.cli.connect import note
from tasks.cli.demo.contact_sheet import Print, draw_sheet
from tasks.cli.demo.drive import Submitted, abort_while_running, fetch, open_http, submit_all
from tasks.cli.demo.plan import Planned, Role, bundled_prompts, make_plan
from tasks.cli.demo.verdict import faults_of
from tasks.cli.exits import FAILED, SUCCEEDED
from tasks.cli.follow import states
from tasks.cli.output import outcome_of, print_json, shape_of, times_of
from tasks.cli.stack_view import stack_view
from tasks.cli.up import serve_on, stopped_by_signals
from tasks.client import Client
from tasks.errors import StoreUnavailable
from tasks.job import Job, Output
from tasks.local.environment import stack_settings
from tasks.local.stack import LocalStack

SHEET = "contact-sheet.png"


def run_demo(folder: Path, *, exit_after: bool, as_json: bool) -> int:
    """The exit code: 1 if anything was not as it should be. Serves on until Ctrl-C unless `exit_after`."""
    plan = make_plan(bundled_prompts())
    folder.mkdir(parents=True, exist_ok=True)
    view = stack_view()
    with stopped_by_signals():
        stack = LocalStack(tell=view.tell)
        with view:
            stack.__enter__()
        try:
            faults = _play(stack, plan, folder, as_json)
            for fault in faults:
                note(f"not as it should be: {fault}")
            if not exit_after and not faults:
                _introduce(stack)
                serve_on(stack)
        finally:
            stack.stop()
    return FAILED if faults else SUCCEEDED


def _play(stack: LocalStack, plan: Sequence[Planned], folder: Path, as_json: bool) -> list[str]:
    began = time.monotonic()
    with open_http(stack.api_url) as http, Client(stack_settings(stack.exports)) as client:
        done = submit_all(http, plan)
        long_id = next(
            job_id for job_id, planned in zip(done.ids, plan, strict=True) if planned.role is Role.ABORT_RUNNING
        )
        done.step_at_abort = abort_while_running(http, long_id)
        jobs = _follow(client, done)
        seconds = time.monotonic() - began
        kept = [_save_outputs(http, planned, job, folder) for planned, job in zip(plan, jobs, strict=True)]
    for planned, job, paths in zip(plan, jobs, kept, strict=True):
        _print_line(planned, job, paths, as_json)
    status, problem = done.refusal
    note(f"--  refused    as planned: {status} {problem.get('detail', '')}")
    num_pictures = _save_sheet(plan, jobs, kept, folder / SHEET, seconds)
    note(f"{len(jobs)} jobs, {num_pictures} pictures in {seconds:.1f} s; all of them on one sheet: {folder / SHEET}")
    return faults_of(plan, jobs, done)


def _follow(client: Client, done: Submitted) -> list[Job]:
    ends: dict[str, Job] = {}
    with board_for(len(done.ids)) as board:
        for job in states(client, done.ids):
            board.show(job)
            if job.status.is_terminal:
                ends[job.id] = job
    return [ends[job_id] for job_id in done.ids]


def _save_outputs(http: httpx.Client, planned: Planned, job: Job, folder: Path) -> list[Path]:
    words = "-".join(re.findall(r"[a-z0-9]+", planned.prompt.lower())[:6])
    paths = []
    for number, output in enumerate(job.outputs):
        body = fetch(http, job.id, number)
        _check_picture(body, output)
        letter = chr(ord("a") + number) if len(job.outputs) > 1 else ""
        path = folder / f"{planned.number:02}{letter}-{words}.png"
        path.write_bytes(body)
        paths.append(path)
    return paths


def _check_picture(body: bytes, output: Output) -> None:
    if hashlib.sha256(body).hexdigest() != output.sha256:
        raise StoreUnavailable(f"{output.uri}: the bytes that came are not those that the worker stored")
    with Image.open(io.BytesIO(body)) as picture:
        picture.load()
        if (picture.format, *picture.size) != ("PNG", output.width, output.height):
            raise StoreUnavailable(f"{output.uri} is {picture.format} {picture.size}, not what its record says")


def _print_line(planned: Planned, job: Job, paths: Sequence[Path], as_json: bool) -> None:
    if as_json:
        print_json(job.to_json() | {"files": [str(path) for path in paths]})
        return
    what = times_of(job.metrics) if paths else outcome_of(job)
    if planned.role in (Role.ABORT_RUNNING, Role.ABORT_QUEUED):
        what = f"as planned: {planned.role}" + (f", at step {job.progress.step}" if job.progress.step else "")
    files = f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "") if paths else ""
    print(f"{planned.number:02}  {job.status.value:9}  {shape_of(job):20}  {what:36}  {files}".rstrip(), flush=True)


def _save_sheet(
    plan: Sequence[Planned], jobs: Sequence[Job], kept: Sequence[Sequence[Path]], path: Path, seconds: float
) -> int:
    prints = [
        Print(each, planned.prompt, f"{shape_of(job).replace('×', 'x')}, seed {output.seed}")
        for planned, job, paths in zip(plan, jobs, kept, strict=True)
        for each, output in zip(paths, job.outputs, strict=True)
    ]
    if prints:
        subtitle = f"{len(prints)} pictures of {len(jobs)} jobs in {seconds:.1f} s, by the bundled model"
        draw_sheet(prints, "Safelight", subtitle).save(path)
    return len(prints)


def _introduce(stack: LocalStack) -> None:
    note("")
    note(f"The page, with all jobs: {stack.api_url}/   (API: {stack.api_url}/openapi.json; as a page, online: /docs)")
    note(f"From another shell:      source {stack.env_file}     then: safelight ls, Python, Celery")
    note("Stop:                    Ctrl-C; what runs may take some seconds to end")
