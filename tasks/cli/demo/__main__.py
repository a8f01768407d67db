"""`python -m tasks.cli.demo`: the same as `safelight demo`."""

import sys

from tasks.cli import main

sys.argv.insert(1, "demo")
main()
