"""`Client`, `AsyncClient` and what they raise."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from docs_gen.fields import table
from tasks import AsyncClient, Client, errors

_HEAD = """# Python

`pip install safelight` brings both clients, without torch. They talk to Redis and to the object store, not to the API,
and read the [settings](settings.md). Neither needs Celery's configuration on your side.

```python
from tasks import Client

with Client() as client:
    job = client.submit(prompt="a red boat on the sea", seed=7)
    job = client.wait(job.id, timeout_s=120)
    print(job.status, client.result_urls(job.id))
```

`Client` is thread-safe: keep one for the process, and make it after a fork. `AsyncClient` has the same names as
coroutines, for one event loop; `events` is an async iterator there. A request is a `GenerationRequest`, a mapping, or
keywords; its fields and those of the `Job` are in [http.md](http.md).
"""
_QUOTED = re.compile(r"(: |-> )'([^']*)'")
_MODULE = re.compile(r"\b(?:tasks|collections|typing|datetime)(?:\.\w+)*\.(\w+)")


def client_page() -> str:
    parts = [_HEAD, "## Methods\n"]
    for name in _names():
        parts += [_method(name), ""]
    rows = [[f"`{error.__name__}`", f"`{error.__bases__[0].__name__}`", _first(error)] for error in _errors()]
    parts += ["## Errors\n", "All are in `tasks.errors`.\n", table(["error", "is a", "meaning"], rows)]
    return "\n".join(parts)


def _names() -> Iterator[str]:
    for owner in (Client, *Client.__bases__):
        for name, found in vars(owner).items():
            if inspect.isfunction(found) and not name.startswith("_"):
                assert hasattr(AsyncClient, name), f"AsyncClient has no {name}"
                yield name


def _method(name: str) -> str:
    method = getattr(Client, name)
    signature = inspect.signature(method)
    shown = str(signature.replace(parameters=list(signature.parameters.values())[1:]))
    told = inspect.getdoc(method) or inspect.getdoc(getattr(AsyncClient, name)) or ""
    shown = _MODULE.sub(r"\1", _QUOTED.sub(r"\1\2", shown))
    return f"### `{name}`\n\n```text\n{name}{shown}\n```\n\n{' '.join(told.split())}".rstrip()


def _errors() -> Iterator[type[Exception]]:
    for found in vars(errors).values():
        if inspect.isclass(found) and issubclass(found, errors.SafelightError):
            yield found


def _first(error: type[Exception]) -> str:
    return " ".join((inspect.getdoc(error) or "").split())
