"""Step mode: what the pipeline call of one row tells, and to whom."""

from collections.abc import Callable

from .adapter import PreviewRow
from .ledger import Account
from .request import Row
from .result import Preview, Stage


class RowHook:
    """The step hook of one row's pipeline call: tells progress, and keeps the time of the request's stages."""

    def __init__(self, row: Row, account: Account, clock: Callable[[], float], since: int = 0) -> None:
        """Nothing is told of what comes before step `since`, which an earlier call of the row has told already."""
        self._row = row
        self._account = account
        self._clock = clock
        self._since = since
        self._told: tuple[Stage, int, int] | None = None
        self._every = account.request.params.preview_every

    def __call__(self, stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
        if step < self._since:
            return
        account = self._account
        progress = account.row_progress(self._row, stage, step, num_steps)
        if progress.stage != account.stage:
            account.enter_stage(progress.stage, self._clock())
        told = progress.stage, progress.step, progress.num_steps
        if told != self._told:
            account.stream.put(progress)
            self._told = told
        every = self._every
        due = every and step and step % every == 0 and stage == "denoising"
        if preview is not None and due and self._is_first_unfinished():
            account.stream.put(Preview(account.request.request_id, step, preview(0)))

    def _is_first_unfinished(self) -> bool:
        return self._row.index == min(index for index in self._account.row_steps if index not in self._account.out)
