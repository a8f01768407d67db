"""`python -m worker`: read the settings, build the node, serve until a signal."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from tasks.errors import ConfigError, StoreUnavailable
from tasks.logs import configure_logs
from tasks.settings import read_settings
from tasks.tracing import tracing_from_environment
from worker.allocator import keep_arenas_few
from worker.turns import take_short_turns


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 after a drain, 1 broken device or model, 2 wrong setting, 4 a server out of reach."""
    parser = argparse.ArgumentParser(
        prog="worker",
        description="Serve models on this machine's device. Settings come from SAFELIGHT_* variables.",
        epilog="SIGTERM or Ctrl-C: take nothing new, finish what fits in SAFELIGHT_DRAIN_GRACE_S, give the rest back; "
        "a second one gives everything back at once.",
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="serve this model of the file only; repeatable"
    )
    names = parser.parse_args(argv).model
    keep_arenas_few()
    take_short_turns()
    try:
        settings = read_settings()
        configure_logs(settings, worker=settings.worker_name)
        tracing = tracing_from_environment("safelight-worker")
        from engine import ModelLoadError
        from worker.node import Node

        try:
            return Node(settings, names, tracing).run()
        except ModelLoadError as error:
            return _leave(str(error), 1)
        finally:
            tracing.close()
    except ConfigError as error:
        return _leave(str(error), 2)
    except StoreUnavailable as error:
        return _leave(str(error), 4)


def _leave(message: str, code: int) -> int:
    print(f"worker: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    code = main()
    # All is settled and closed by now. Tearing down an interpreter that holds a model takes seconds, which a
    # supervisor with a short patience would answer with SIGKILL.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
