"""Step mode for unmodified diffusers pipelines.

Every row runs a pipeline call of its own, on a view of the pipeline with its own noise scheduler. The models that the
calls share hold each call at its door; the engine lets those in together whose calls can be one. The idea and what it
costs: docs/decisions/0005-step-mode.md.
"""

import functools
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..adapter import Capabilities, RowCall, RowOutcome, StepHook
from ..batch import Batch
from ..checkpoint import RowState
from ..config import EngineConfig
from ..errors import ModelError, ModelLoadError, OutOfMemory
from ..params import Loras
from ..pending import Pending
from ..request import Row
from ..result import Stage
from .merging.call import ModelCall, run_calls
from .merging.known_texts import KnownTexts
from .merging.leaves import CannotSplit
from .merging.rendezvous import HeldCall, Rendezvous
from .merging.site import Site
from .out_of_memory import is_out_of_memory
from .outline import outline, zeros
from .pipeline_call import PipelineCall
from .self_check import self_check
from .step_safety import denoisers_of, why_not
from .whole import Rendered, WholePipeline

log = logging.getLogger(__name__)


class DiffusersRowCall:
    """A RowCall over a greenlet."""

    def __init__(
        self,
        row: Row,
        call: PipelineCall,
        finish: Callable[[], Rendered],
        *,
        alone: bool,
        loras: Loras,
        known_text: Callable[[ModelCall], Any | None],
        resume: RowState | None,
        device: torch.device,
    ) -> None:
        self._row = row
        self.loras = loras
        self._known_text = known_text
        self._call = call
        self._answers: Mapping[str, Any] = {} if resume is None else resume.state["answers"]
        self._device = device
        self.held = HeldCall(finish, alone=alone, company=loras, known_answer=self._known_answer)
        self.held.step()

    @property
    def outcome(self) -> RowOutcome | Pending | None:
        if self.held.call is not None:
            return None
        error = self.held.raised
        if error is None:
            return self.rendered.outcomes[0]
        if isinstance(error, Exception):
            return OutOfMemory(str(error).partition("\n")[0]) if is_out_of_memory(error) else error
        return ModelError(f"the pipeline was ended by {type(error).__name__}")

    @property
    def rendered(self) -> Rendered:
        """Everything that the finished call gave."""
        rendered = self.held.result
        assert isinstance(rendered, Rendered)
        return rendered

    @property
    def key(self) -> Hashable:
        assert self.held.call is not None
        return self.held.call.key

    @property
    def stage(self) -> Stage:
        assert self.held.call is not None
        return self.held.call.site.stage

    def state(self) -> RowState | None:
        if self._call.num_steps_done == 0:
            return None
        answers = {site.name: outline(answer) for site, answer in self.held.answers.items()}
        state = {"call": self._call.state(), "answers": {**self._answers, **answers}}
        return RowState(self._row.index, self._call.num_steps_done, state)

    def _known_answer(self, call: ModelCall) -> Any | None:
        """A text that was encoded before; zeros for the steps behind a resumed call, which nobody looks at."""
        if not (_is_denoiser(call.site) and self._call.is_replaying):
            return self._known_text(call)
        return zeros(self._answers[call.site.name], self._device)

    def fail(self, error: Exception) -> None:
        self.held.fail(error)

    def abort(self) -> None:
        self.held.abort()


class StepPipeline(WholePipeline):
    """A PipelineAdapter for both modes; which one is settled while it loads."""

    def __init__(self, config: EngineConfig, *, defers: bool = False) -> None:
        super().__init__(config, defers=defers)
        self._rendezvous: Rendezvous | None = None
        self._texts = KnownTexts(0)

    def load(self) -> Capabilities:
        """Raises ModelLoadError, also when step mode is demanded of a pipeline that cannot have it."""
        capabilities = super().load()
        accepts_generator = all(task.accepts("generator") for task in self._tasks.values())
        reason = why_not(self._loaded, self._config, accepts_generator=accepts_generator)
        if reason is not None:
            if self._config.mode == "step":
                self.close()
                raise ModelLoadError(
                    f"{self._config.model} cannot be served in step mode: {reason}. Try mode='request'."
                )
            return self._in_request_mode(capabilities, reason)
        self._rendezvous = Rendezvous(self._sites())
        check = self_check(self, capabilities)
        if not check.merges and self._config.mode == "auto":
            self._rendezvous.close()
            return self._in_request_mode(capabilities, f"{check.words}, and without merging request mode is faster")
        if not check.merges:
            for site in self._rendezvous.sites:
                site.mergeable = False
        self._texts = KnownTexts(self._config.prompt_cache_mb * 2**20)  # not before: the check is to merge texts
        return replace(capabilities, mode="step", mode_reason=check.words)

    def _in_request_mode(self, capabilities: Capabilities, reason: str) -> Capabilities:
        if self._config.compile:
            self._compile()
        return replace(capabilities, mode_reason=reason)

    def open(self, batch: Batch, on_step: StepHook, *, alone: bool, resume: RowState | None = None) -> DiffusersRowCall:
        (row,) = batch.rows
        call = self._call(batch, on_step, None if resume is None else resume.state["call"])
        finish = functools.partial(self._finish, batch, call)
        loras = batch.key.loras
        self._within_memory(1, lambda: self._loras.activate(loras))
        return DiffusersRowCall(
            row,
            call,
            finish,
            alone=alone,
            loras=loras,
            known_text=lambda call: self._texts.get(self._texts.question(call, self._loras.stamp(loras))),
            resume=resume,
            device=self._device,
        )

    def advance(self, calls: Sequence[RowCall]) -> None:
        """Rows of one forward have the same LoRAs, which then also serve what the rows do until their next call."""
        rows = [call for call in calls if isinstance(call, DiffusersRowCall)]
        held = [row.held for row in rows]
        model_calls = [one.call for one in held if one.call is not None]
        assert len(model_calls) == len(calls)
        try:
            self._within_memory(len(calls), lambda: self._loras.activate(rows[0].loras))
            answers = self._within_memory(len(calls), lambda: self._answer(model_calls, rows[0].loras))
        except CannotSplit as error:
            site = model_calls[0].site
            log.warning("%s is not merged any more: its output has %s", site.name, error)
            site.mergeable = False
            raise
        for one, answer in zip(held, answers, strict=True):
            one.step(answer)

    def _answer(self, calls: Sequence[ModelCall], loras: Loras) -> Sequence[Any]:
        """Of calls that may share a forward. If all ask the same of a text encoder it is asked once, or not at all."""
        questions = {self._texts.question(call, self._loras.stamp(loras)) for call in calls}
        question = questions.pop()
        if question is None or questions:
            return run_calls(calls)
        if (known := self._texts.get(question)) is None:
            (known,) = run_calls(calls[:1])
            self._texts.put(question, known)
        copies = [self._texts.get(question) for _ in calls[1:]]
        return [known, *copies] if None not in copies else [known, *run_calls(calls[1:])]  # too large to be kept

    def close(self) -> None:
        self._texts = KnownTexts(0)
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None
        super().close()

    def _sites(self) -> Iterable[Site]:
        """The doors of the models that all tasks share."""
        pipelines = {id(task.pipeline): task.pipeline for task in self._tasks.values()}.values()
        seen: set[int] = set()
        for pipeline in pipelines:
            for name, module in denoisers_of(pipeline).items():
                if id(module) not in seen:
                    seen.add(id(module))
                    yield Site.of(name, module, "forward", "denoising", compiled=self._config.compile)
            for name, module in pipeline.components.items():
                if not isinstance(module, torch.nn.Module) or id(module) in seen:
                    continue
                if name.startswith("text_encoder"):
                    seen.add(id(module))
                    yield Site.of(name, module, "forward", "encoding")
                elif name in ("vae", "vqvae", "movq"):
                    seen.add(id(module))
                    yield Site.of(name, module, "encode", "encoding", mergeable=False)
                    yield Site.of(name, module, "decode", "decoding")


def _is_denoiser(site: Site) -> bool:
    return site.stage == "denoising"
