"""`python -m api_stub`: the API and the page on one port."""

from __future__ import annotations

import argparse
import sys

from api_stub.serve import EXIT_USAGE, serve
from tasks.errors import ConfigError
from tasks.settings import read_settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m api_stub", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free port (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        settings = read_settings()
    except ConfigError as error:
        print(f"safelight api: {error}", file=sys.stderr)
        return EXIT_USAGE
    return serve(settings, arguments.host, arguments.port)


if __name__ == "__main__":
    sys.exit(main())
