"""Whether a command shows pictures, and the pictures of jobs that have ended. On stderr: stdout belongs to results."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.cli.connect import note
from tasks.errors import StoreUnavailable

if TYPE_CHECKING:
    from tasks.artifacts import ArtifactStore
    from tasks.cli.pictures.terminal import Protocol
    from tasks.job import Job
    from tasks.settings import Settings

WithPreview = Annotated[
    bool | None,
    typer.Option(
        "--preview/--no-preview",
        help="Show previews and the result in the terminal; default: if it can. Never in a pipe.",
        show_default=False,
    ),
]
#: Steps between previews, if they are asked for without a number.
PREVIEW_EVERY = 5
#: More results than this are named only.
_MAX_JOBS, _MAX_OUTPUTS = 4, 4
_MAX_BYTES = 32 * 1024 * 1024


def pictures_here(wanted: bool | None) -> Protocol | None:
    """How this terminal shows pictures; None if it cannot, which is told if it was wanted, or nobody looks."""
    if wanted is False or not (sys.stdout.isatty() and sys.stderr.isatty()):
        return None
    from tasks.cli.pictures.terminal import protocol_of

    protocol = protocol_of(os.environ)
    if wanted and protocol is None:
        note("safelight: --preview: this terminal is not known to show pictures (COLORTERM=truecolor would do)")
    return protocol


def show_results(settings: Settings, jobs: Sequence[Job], protocol: Protocol | None) -> None:
    """The pictures of a few jobs, small. A picture that cannot be had is no error: its job has succeeded."""
    shown = [job for job in jobs if any(output.content_type.startswith("image/") for output in job.outputs)]
    if protocol is None or not 0 < len(shown) <= _MAX_JOBS:
        return
    from tasks.artifacts import ArtifactStore

    artifacts = ArtifactStore(settings)
    for number, job in enumerate(shown):
        if len(shown) > 1:
            note(job.id)
        try:
            _show(artifacts, job, protocol, number)
        except StoreUnavailable as error:
            note(f"safelight: no picture: {error}")


def _show(artifacts: ArtifactStore, job: Job, protocol: Protocol, number: int) -> None:
    from tasks.cli.pictures.thumb import MAX_COLUMNS, decoded, strip, thumb_of

    outputs = [
        output
        for output in job.outputs[:_MAX_OUTPUTS]
        if output.content_type.startswith("image/") and output.size_bytes <= _MAX_BYTES
    ]
    images = [decoded(artifacts.get(output.uri, output.size_bytes)) for output in outputs]
    if found := [image for image in images if image is not None]:
        columns = min(MAX_COLUMNS * len(found), os.get_terminal_size(sys.stderr.fileno()).columns)
        # Numbers 0 and 1 are the previews'.
        sys.stderr.write(thumb_of(strip(found), protocol, columns, number=number + 2).shown())
        sys.stderr.flush()
