"""Step mode for unmodified diffusers pipelines.

Every row runs a pipeline call of its own, on a view of the pipeline with its own noise scheduler. The models that the
calls share hold each call at its door; the engine lets those in together whose calls can be one. The idea and what it
costs: docs/decisions/0005-step-mode.md.
"""

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..adapter import Capabilities, RowCall, StepHook
from ..batch import Batch
from ..checkpoint import RowState
from ..config import EngineConfig
from ..errors import ModelLoadError
from ..params import Loras
from .gang import DiffusersRowCall, Gang, GangHook
from .merging.call import ModelCall, run_calls
from .merging.known_texts import KnownTexts
from .merging.leaves import CannotSplit
from .merging.members import join
from .merging.rendezvous import Rendezvous
from .merging.site import Site
from .self_check import self_check
from .step_safety import denoisers_of, why_not
from .whole import WholePipeline

log = logging.getLogger(__name__)


class StepPipeline(WholePipeline):
    """A PipelineAdapter for both modes; which one is settled while it loads."""

    def __init__(self, config: EngineConfig, *, defers: bool = False) -> None:
        super().__init__(config, defers=defers)
        self._rendezvous: Rendezvous | None = None
        self._texts = KnownTexts(0)
        self.has_gangs = False

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
        self.has_gangs = check.merges and check.gangs
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
        (call,) = self._open(batch, GangHook([on_step]), alone=alone, resume=resume)
        return call

    def open_gang(self, batch: Batch, hooks: Sequence[StepHook]) -> Sequence[DiffusersRowCall]:
        return self._open(batch, GangHook(hooks), alone=False, resume=None)

    def _open(
        self, batch: Batch, on_step: GangHook, *, alone: bool, resume: RowState | None
    ) -> Sequence[DiffusersRowCall]:
        call = self._call(batch, on_step, None if resume is None else resume.state["call"])
        loras = batch.key.loras
        self._within_memory(len(batch.rows), lambda: self._loras.activate(loras))
        gang = Gang(
            batch.rows,
            call,
            on_step.left,
            functools.partial(self._finish, batch, call),
            alone=alone,
            loras=loras,
            known_text=lambda call: self._known_text(call, loras),
            resume=resume,
            device=self._device,
        )
        return [DiffusersRowCall(gang, member) for member in range(len(batch.rows))]

    def advance(self, calls: Sequence[RowCall]) -> None:
        """Rows of one forward have the same LoRAs, which then also serve what the rows do until their next call."""
        members: dict[Gang, list[int]] = {}
        for call in calls:
            assert isinstance(call, DiffusersRowCall)
            members.setdefault(call.gang, []).append(call.member)
        model_calls = [gang.call_of(some) for gang, some in members.items()]
        loras = next(iter(members)).loras
        try:
            self._within_memory(len(calls), lambda: self._loras.activate(loras))
            answers = self._within_memory(len(calls), lambda: self._answer(model_calls, loras))
        except CannotSplit as error:
            site = model_calls[0].site
            log.warning("%s is not merged any more: its output has %s", site.name, error)
            site.mergeable = False
            raise
        for (gang, some), answer in zip(members.items(), answers, strict=True):
            gang.answer(some, answer)

    def _known_text(self, call: ModelCall, loras: Loras) -> Any | None:
        """Of a gang: only if each of its texts is known."""
        if not self._texts.keeps(call):
            return None
        known = [self._texts.get(self._texts.question(one, self._loras.stamp(loras))) for one in call.each()]
        if any(answer is None for answer in known):
            return None
        return known[0] if len(known) == 1 else join(known, call.layout)

    def _answer(self, calls: Sequence[ModelCall], loras: Loras) -> Sequence[Any]:
        """Of calls that may share a forward. If all ask the same of a text encoder it is asked once, or not at all."""
        if not self._texts.keeps(calls[0]):
            return run_calls(calls)
        each = [call.each() for call in calls]
        answers = iter(self._answer_texts([one for some in each for one in some], loras))
        return [
            next(answers) if len(some) == 1 else join([next(answers) for _ in some], call.layout)
            for call, some in zip(calls, each, strict=True)
        ]

    def _answer_texts(self, calls: Sequence[ModelCall], loras: Loras) -> Sequence[Any]:
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
