"""Exit 0 if the worker of this container, known by its name, has a live beat. A health check: imports no torch.

With `--live` a Redis that does not answer is no fault of the worker's: what restarts it would only end the work in
hand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tasks.connection import connect
from tasks.errors import ConfigError, StoreUnavailable
from tasks.redis_store import RedisJobStore
from tasks.settings import read_settings


def main(arguments: Sequence[str]) -> int:
    try:
        settings = read_settings()
        with connect(settings) as client:
            workers = RedisJobStore(client, settings.key_prefix).workers()
    except ConfigError as error:
        return _unhealthy(str(error))
    except StoreUnavailable as error:
        return 0 if "--live" in arguments else _unhealthy(str(error))
    if any(worker["host"] == settings.worker_name for worker in workers):
        return 0
    return _unhealthy(f"no beat of a worker on {settings.worker_name}; it starts, or it hangs")


def _unhealthy(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
