"""A place where pipeline calls are held: one method of one module that they share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ...result import Stage
from .kept import Kept
from .rules import GENERATOR_UNUSED, PADDED_TEXTS, TextPadding


@dataclass(eq=False, slots=True)
class Site:
    """`name` is as in `unet.forward`. `mergeable` False: calls are held here and then run one by one."""

    name: str
    stage: Stage
    module: torch.nn.Module
    method: str
    original: Callable[..., Any]
    mergeable: bool = True
    parameters: tuple[str, ...] = ()
    padded: tuple[TextPadding, ...] = ()
    ignored: frozenset[str] = frozenset()
    #: the method that the module itself had in place of its class's, which `patch` displaces
    own: Callable[..., Any] | None = None
    merged: Kept = field(default_factory=Kept)

    @classmethod
    def of(
        cls,
        component: str,
        module: torch.nn.Module,
        method: str,
        stage: Stage,
        *,
        mergeable: bool = True,
        compiled: bool = False,
    ) -> "Site":
        """`compiled` compiles what is behind the door: a compiled module would not notice the door."""
        original = getattr(module, method)
        kind = type(module).__name__
        parameters = inspect.signature(original).parameters.values()
        return cls(
            name=f"{component}.{method}",
            stage=stage,
            module=module,
            method=method,
            original=torch.compile(original) if compiled else original,
            mergeable=mergeable,
            parameters=tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD),
            padded=PADDED_TEXTS.get(kind, ()),
            ignored=frozenset({"generator"}) if kind in GENERATOR_UNUSED else frozenset(),
            own=vars(module).get(method),
        )

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """All arguments by name, None where a name cannot be told."""
        if len(args) > len(self.parameters):
            return None
        return dict(zip(self.parameters, args, strict=False)) | kwargs if args else kwargs

    def patch(self, hold: Callable[["Site", tuple[Any, ...], dict[str, Any]], Any]) -> None:
        """Let `hold` answer all calls, until `restore`."""

        @functools.wraps(self.original)  # pipelines and transformers read its signature
        def held(*args: Any, **kwargs: Any) -> Any:
            return hold(self, args, kwargs)

        vars(self.module)[self.method] = held

    def restore(self) -> None:
        self.merged.clear()
        vars(self.module).pop(self.method, None)
        if self.own is not None:
            vars(self.module)[self.method] = self.own
