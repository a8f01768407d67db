"""`python -m tasks.cli`: the same as `safelight`."""

from tasks.cli import main

main()
