"""Where pipeline calls meet: each runs as a greenlet and is held when it calls one of the shared models.

A call that is not one of ours, and any call under autocast (which is a state of the thread that a switch would carry to
others), goes straight through. Greenlets share the device thread: no locks, one CUDA stream, one OpenMP team.
"""

import traceback
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import greenlet
from torch import is_autocast_enabled

from .call import ModelCall, read_again, read_call
from .content import Contents
from .site import Site


class Rendezvous:
    """Patches the sites while it is open. Device thread only."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._sites = tuple(sites)
        self._contents = Contents()
        for site in self._sites:
            site.patch(self._hold)

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._sites

    def close(self) -> None:
        """Leave the modules as they were. Idempotent."""
        for site in self._sites:
            site.restore()

    def _hold(self, site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        current = greenlet.getcurrent()
        if not isinstance(current, HeldCall) or is_autocast_enabled("cuda") or is_autocast_enabled("cpu"):
            return site.original(*args, **kwargs)
        arguments = site.named(args, kwargs)
        if arguments is None:
            return site.original(*args, **kwargs)
        before = current.calls.get(site)
        call = None if before is None else read_again(before, arguments)
        if call is None:
            call = read_call(
                site,
                arguments,
                self._contents,
                alone=current.alone,
                company=current.company,
                members=current.members,
            )
        current.calls[site] = call
        return current.answer(call)


class CallAborted(BaseException):
    """Ends a held pipeline call. No Exception, so that no library keeps it."""


class HeldCall(greenlet.greenlet):
    """A function that runs on the device thread in pieces: `step` goes on to its next model call, or to its end."""

    def __init__(
        self,
        function: Callable[[], Any],
        *,
        alone: bool = False,
        company: Hashable = None,
        members: int = 1,
        known_answer: Callable[[ModelCall], Any | None] = lambda call: None,
    ) -> None:
        """Its model calls merge with those of equal `company` only, `alone` with none. One with a known answer is not
        held at all. Each call is for so many `members`."""
        super().__init__(run=self._main)
        self._function = function
        self._known_answer = known_answer
        self.alone = alone
        self.company = company
        self.members = members
        #: the last call at each site, and each denoiser's last answer
        self.calls: dict[Site, ModelCall] = {}
        self.answers: dict[Site, Any] = {}
        self.call: ModelCall | None = None
        self.result: Any = None
        self.raised: BaseException | None = None

    def step(self, answer: Any = None) -> None:
        """Start, or go on with the model's answer. Returns when the function is held again or has ended."""
        self._hub = greenlet.getcurrent()
        if self.call is None:
            self.switch()
        else:
            self.call = None
            self.switch(answer)

    def fail(self, error: BaseException) -> None:
        """Let the held model call raise `error` where the function called it."""
        self._throw(error)

    def abort(self) -> None:
        """End the function where it is held. Nothing happens after its end."""
        if self.call is not None:
            self._throw(CallAborted())

    def answer(self, call: ModelCall) -> Any:
        """Called from within: hand over the model call, and come back with its answer."""
        known = self._known_answer(call)
        if known is not None:
            return known
        self.call = call
        answer = self._hub.switch()
        if call.site.stage == "denoising":  # texts and pictures need not live as long as the row
            self.answers[call.site] = answer
        return answer

    def _throw(self, error: BaseException) -> None:
        self._hub = greenlet.getcurrent()
        self.call = None
        self.throw(error)

    def _main(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)
            self.raised = error
        # Nothing of it lives on in a cycle of references: a device's memory cannot wait for the garbage collector.
        del self._function, self._known_answer
        self.answers.clear()
        self.calls.clear()
        # The greenlet's parent is the one that made it, which is not always the one that goes on with it.
        self.parent = self._hub
