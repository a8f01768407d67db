"""Which class of engine serves a configuration. Pure: it imports a module by its name at most, and builds nothing."""

import importlib
from typing import TypeVar

DEFAULT = "default"

E = TypeVar("E")


def resolve_engine_class(backend: str | type | None, base: type[E]) -> type[E]:
    """`base` for None and "default", else a subclass of it, given itself or by dotted path.

    Raises ValueError for a path that leads nowhere, TypeError for what is no subclass of `base`.
    """
    if backend is None or backend == DEFAULT:
        return base
    found = _imported(backend) if isinstance(backend, str) else backend
    if not (isinstance(found, type) and issubclass(found, base)):
        raise TypeError(f"engine_backend {backend!r} is no subclass of {base.__name__}")
    return found


def _imported(path: str) -> object:
    module_name, _, class_name = path.rpartition(".")
    if not module_name:
        raise ValueError(f"engine_backend must be {DEFAULT!r} or a dotted path to a class, not {path!r}")
    try:
        return vars(importlib.import_module(module_name))[class_name]
    except (ImportError, KeyError) as error:
        raise ValueError(f"engine_backend {path} cannot be found: {error}") from error
