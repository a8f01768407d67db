"""The bars of `watch` on a terminal, with rich, on stderr: the live jobs below, and what has ended above them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from tasks.cli.job_bar import bar_line
from tasks.cli.output import result_lines
from tasks.cli.pictures.terminal import Protocol
from tasks.cli.pictures.thumb import Thumb, of_data_uri, thumb_of
from tasks.job import Job
from tasks.store import Event


class BarBoard:
    """One bar a live job, those that run first; what does not fit is counted. A job that ends leaves its bar as a line.

    With `tells_ends` that line is the job's result, as it would be printed on stdout.
    """

    def __init__(
        self, console: Console | None = None, *, pictures: Protocol | None = None, tells_ends: bool = False
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self.tells_ends = tells_ends
        self._pictures = pictures
        self._picture: tuple[str, ThumbView] | None = None
        self._num_pictures = 0
        self._jobs: dict[str, Job] = {}
        self._live = Live(
            console=self._console, get_renderable=self._drawn, refresh_per_second=5, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def show(self, job: Job, events: Sequence[Event] = ()) -> None:
        if job.status.is_terminal:
            self._jobs.pop(job.id, None)
            if self._picture and self._picture[0] == job.id:
                self._picture = None
            self._tell_end(job)
        else:
            self._jobs[job.id] = job
            self._show_preview(job, [event for event in events if event.type == "preview"])

    def _tell_end(self, job: Job) -> None:
        if not self.tells_ends:
            self._console.print(bar_line(job, self._console.width))
            return
        for line in result_lines(job, self._console.width):
            self._console.print(line, markup=False, soft_wrap=True)

    def _show_preview(self, job: Job, previews: Sequence[Event]) -> None:
        if self._pictures is None or not previews or self._console.height < 20:
            return
        image = of_data_uri(str(previews[-1].data.get("image", "")))
        if image is not None:
            self._num_pictures = (self._num_pictures + 1) % 2  # the one that is shown is not the one that is sent
            self._picture = job.id, ThumbView(thumb_of(image, self._pictures, number=self._num_pictures))

    def _drawn(self) -> RenderableType:
        picture = self._picture
        parts: list[RenderableType] = [] if picture is None else [picture[1]]
        room = self._console.height - 2 - (0 if picture is None else picture[1].thumb.rows)
        return Group(*parts, *self._bars(max(1, room)))

    def _bars(self, room: int) -> Iterator[Text]:
        jobs = sorted(self._jobs.values(), key=_order)
        for job in jobs[:room]:
            yield bar_line(job, self._console.width)
        if more := jobs[room:]:
            yield Text(f"and {len(more)} more", "bright_black")


def _order(job: Job) -> tuple[bool, int]:
    """Those that run, then by their place in the queue; otherwise as they came."""
    return job.status.value != "running", job.progress.queue_position or 0


class ThumbView:
    """A thumb as rich draws it, again and again at the same place."""

    def __init__(self, thumb: Thumb) -> None:
        self.thumb = thumb
        self._is_sent = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.thumb.lines:
            for line in self.thumb.lines:
                yield Text.from_ansi(line, no_wrap=True)
            return
        yield Segment("\n" * self.thumb.rows)
        once = "" if self._is_sent else self.thumb.once
        self._is_sent = True
        yield Segment(once + self.thumb.drawn_above(), None, [(ControlType.CARRIAGE_RETURN,)])
