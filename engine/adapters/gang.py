"""A pipeline call under way for one row or for several of equal batch key, and each row's part in it.

The rows of a gang share one loop and one noise scheduler; at each model call they are apart again. Some may be served
before others, one may leave or fail: the loop goes on once all that are left have their answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from ..adapter import PreviewRow, RowOutcome, StepHook
from ..checkpoint import RowState
from ..errors import ModelError, OutOfMemory
from ..params import Loras
from ..pending import Pending
from ..request import Row
from ..result import Stage
from .frozen import state_of_row
from .merging.call import ModelCall
from .merging.leaves import Layout, split
from .merging.members import blank, join
from .merging.rendezvous import HeldCall
from .out_of_memory import is_out_of_memory
from .outline import outline, zeros
from .pipeline_call import PipelineCall

if TYPE_CHECKING:
    from .whole import Rendered


class GangHook:
    """The step hook of a gang's pipeline call: tells those of its rows that are `left`."""

    def __init__(self, hooks: Sequence[StepHook]) -> None:
        self._hooks = hooks
        self.left = set(range(len(hooks)))

    def __call__(self, stage: Stage, step: int, num_steps: int, preview: PreviewRow | None = None) -> None:
        if len(self._hooks) == 1:
            self._hooks[0](stage, step, num_steps, preview)
            return
        for member in sorted(self.left):
            drawn = None if preview is None else functools.partial(_of_member, preview, member)
            self._hooks[member](stage, step, num_steps, drawn)


def _of_member(preview: PreviewRow, member: int, _: int) -> Image.Image:
    return preview(member)


class Gang:
    """Held at the model calls of its pipeline call. Members are counted from 0, in the order of `rows`."""

    def __init__(
        self,
        rows: Sequence[Row],
        call: PipelineCall,
        left: set[int],
        finish: Callable[[], Rendered],
        *,
        alone: bool,
        loras: Loras,
        known_text: Callable[[ModelCall], Any | None],
        resume: RowState | None,
        device: torch.device,
    ) -> None:
        self.rows = rows
        self.loras = loras
        self.pipeline_call = call
        self.resume = resume
        self._known_text = known_text
        self._known_shapes: Mapping[str, Any] = {} if resume is None else resume.state["answers"]
        self._device = device
        self._left = left
        #: of members that are ahead of the others by this call
        self._answers: dict[int, Any] = {}
        self.held = HeldCall(finish, alone=alone, company=loras, members=len(rows), known_answer=self._known_answer)
        self.held.step()

    @property
    def call(self) -> ModelCall | None:
        """The model call that it stands before, None after its end."""
        return self.held.call

    def call_of(self, members: Sequence[int]) -> ModelCall:
        assert self.held.call is not None
        return self.held.call.of(members)

    def waits(self, member: int) -> bool:
        return member in self._answers

    def answer(self, members: Sequence[int], answer: Any) -> None:
        """What the model said to `call_of(members)`. Goes on if nobody is missing now."""
        call = self.held.call
        if call is None:  # the last of its rows left while the forward ran
            return
        if call.whole or len(members) == len(self.rows):
            self._answers.clear()
            self.held.step(answer)
            return
        layout = call.layout
        each = split(answer, [Layout(layout.rows, 1, layout.by_list)] * len(members))
        self._answers.update(zip(members, each, strict=True))
        self._go_on()

    def leave(self, member: int) -> None:
        """Nobody wants its row any more; the others do not notice. The last one ends the call."""
        self._left.discard(member)
        if self.held.call is None:
            return
        if self._left:
            self._go_on()
        else:
            self._answers.clear()
            self.held.abort()

    def state(self, member: int) -> RowState | None:
        """Where it stands, None before its first step. Raises TypeError."""
        call = self.pipeline_call
        if call.num_steps_done == 0:
            return self.resume
        state = call.state() if len(self.rows) == 1 else state_of_row(call.state(), member, len(self.rows))
        shapes = {
            site.name: outline(self._answer_of(site, answer, member)) for site, answer in self.held.answers.items()
        }
        return RowState(
            self.rows[member].index, call.num_steps_done, {"call": state, "answers": {**self._known_shapes, **shapes}}
        )

    def outcome(self, member: int) -> RowOutcome | Pending | None:
        if self.held.call is not None:
            return None
        error = self.held.raised
        if error is None:
            return self.rendered.outcomes[member]
        if isinstance(error, Exception):
            return OutOfMemory(str(error).partition("\n")[0]) if is_out_of_memory(error) else error
        return ModelError(f"the pipeline was ended by {type(error).__name__}")

    @property
    def rendered(self) -> Rendered:
        """Everything that the finished call gave."""
        return self.held.result  # type: ignore[no-any-return]

    def _go_on(self) -> None:
        if self._left - self._answers.keys():
            return
        call, answers, self._answers = self.held.call, self._answers, {}
        assert call is not None
        nothing = blank(next(iter(answers.values()))) if len(answers) < len(self.rows) else None
        self.held.step(join([answers.get(member, nothing) for member in range(len(self.rows))], call.layout))

    def _answer_of(self, site: Any, answer: Any, member: int) -> Any:
        call = self.held.calls[site]
        if len(self.rows) == 1:
            return answer
        if call.whole:
            raise TypeError(f"the rows of {site.name} cannot be told apart")
        return split(answer, [Layout(call.layout.rows, 1, call.layout.by_list)] * len(self.rows))[member]

    def _known_answer(self, call: ModelCall) -> Any | None:
        """A text that was encoded before; zeros for the steps behind a resumed call, which nobody looks at."""
        if call.site.stage != "denoising":
            return self._known_text(call)
        return zeros(self._known_shapes[call.site.name], self._device) if self.pipeline_call.is_replaying else None


class DiffusersRowCall:
    """A RowCall: one member of a gang."""

    def __init__(self, gang: Gang, member: int) -> None:
        self.gang = gang
        self.member = member
        self._failure: Exception | None = None

    @property
    def outcome(self) -> RowOutcome | Pending | None:
        return self._failure or self.gang.outcome(self.member)

    @property
    def key(self) -> Any:
        assert self.gang.call is not None
        return self.gang.call.key

    @property
    def stage(self) -> Any:
        assert self.gang.call is not None
        return self.gang.call.site.stage

    @property
    def waits(self) -> bool:
        return self.gang.waits(self.member)

    def state(self) -> RowState | None:
        return self.gang.state(self.member)

    def fail(self, error: Exception) -> None:
        if len(self.gang.rows) == 1:
            self.gang.held.fail(error)
            return
        self._failure = error
        self.gang.leave(self.member)

    def abort(self) -> None:
        self.gang.leave(self.member)
