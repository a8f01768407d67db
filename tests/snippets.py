"""The snippets of our Markdown, and what a line of shell calls."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "bench/*.md", "training/*.md", "engine/models/**/*.md")
    for path in ROOT.glob(pattern)
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ENDS = {"|", "||", "&&", ";", "&", "(", ")"}


@dataclass(frozen=True)
class Snippet:
    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text[:40].strip()}"


def snippets(*languages: str, pages: list[Path] = PAGES) -> list[Snippet]:
    found = ((page, *match) for page in pages for match in _FENCE.findall(page.read_text("utf-8")))
    return [Snippet(page, language, text) for page, language, text in found if language in languages]


def commands(shell: str) -> Iterator[list[str]]:
    """The simple commands of some shell, in words; variables that are set before one are left out."""
    for line in re.sub(r"\\\n", " ", shell).splitlines():
        for inner in re.findall(r"\$\((.*?)\)", line):
            yield from commands(inner)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _ENDS:
                yield from _without_variables(words)
                words = []
            else:
                words.append(word)


def _without_variables(words: list[str]) -> Iterator[list[str]]:
    while words and re.match(r"^[A-Z_][A-Z0-9_]*=", words[0]):
        words = words[1:]
    if words:
        yield words
