"""`python -m docs_gen` writes the pages; `--check` only says which are stale, with exit code 1 if any is."""

from __future__ import annotations

import sys
from pathlib import Path

from docs_gen.cli_page import cli_page
from docs_gen.client_page import client_page
from docs_gen.http_page import http_page
from docs_gen.models_page import models_page
from docs_gen.settings_page import settings_page

HOME = Path(__file__).parents[1] / "docs/reference"
PAGES = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "http.md": http_page,
    "python.md": client_page,
    "models.md": models_page,
}
_NOTE = "<!-- Written by `python -m docs_gen` from the code. Change that. -->\n\n"


def written() -> dict[str, str]:
    """The pages by name, as they should be."""
    return {name: _NOTE + page().rstrip() + "\n" for name, page in PAGES.items()}


def stale() -> list[str]:
    """Names of pages that say something else than the code."""
    return [name for name, text in written().items() if not _is(HOME / name, text)]


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        print("\n".join(old := stale()), end="\n" if old else "")
        return 1 if old else 0
    HOME.mkdir(exist_ok=True)
    for name, text in written().items():
        (HOME / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
