"""What our Markdown says is there: links, shell, commands with their options, names in Python, settings."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from tasks import AsyncClient, Client
from tasks.cli.app import app
from tasks.settings import Settings
from tests.snippets import PAGES, ROOT, Snippet, commands, snippets

SAFELIGHT = typer.main.get_command(app)
SHELL = snippets("sh")
OURS = {"tasks", "engine", "worker", "api_stub", "bench", "examples", "docs_gen", "tests", "training"}
#: Set by the reader, by compose, or by an example of an attack: no settings of the programs.
OTHER_VARIABLES = {
    "SAFELIGHT_URL",
    "SAFELIGHT_API_KEY",
    "SAFELIGHT_GPU",
    "SAFELIGHT_TAG",
    "SAFELIGHT_S3_BUKCET",
}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_every_page_is_on_the_map() -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index.read_text("utf-8"))}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.parent.name != "decisions"}
    assert pages - {index} <= linked


def test_architecture_is_one_page() -> None:
    assert len((ROOT / "docs/architecture.md").read_text("utf-8").splitlines()) < 80


def test_shell_parses() -> None:
    texts = {snippet.name: snippet.text for snippet in SHELL}
    assert len(texts) > 20
    script = "\n".join(f"f{number}() {{\n{text}\n:\n}}" for number, text in enumerate(texts.values()))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def calls() -> Iterator[tuple[str, list[str]]]:
    """Each call of `safelight` on any page: in snippets, and in the middle of a sentence."""
    for snippet in SHELL:
        for words in commands(snippet.text):
            if words[0] == "safelight" or (words[0] in ("docker", "kubectl") and "exec" in words):
                yield snippet.name, words[len(words) - words[::-1].index("safelight") :]
    for page in PAGES:
        for text in re.findall(r"`(safelight [a-z][^`]*)`", prose(page)):
            for words in commands(text.replace("…", "")):
                yield f"{page.name}: {text}", words[1:]


def wrong(words: list[str]) -> str | None:
    """What of a call is not in the program."""
    command, at = SAFELIGHT, 0
    while (below := getattr(command, "commands", None)) and at < len(words) and not words[at].startswith("-"):
        if words[at] not in below:
            return f"no command {words[at]}"
        command, at = below[words[at]], at + 1
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.partition("=")[0] for word in words[at:] if re.match(r"--?[a-z]", word)]
    return next((f"no option {option}" for option in options if option not in {*known, "--help", "-h"}), None)


@pytest.mark.parametrize(
    "call", sorted({(where, *words) for where, words in calls()}), ids=lambda call: " ".join(call)[:70]
)
def test_commands_and_options_exist(call: tuple[str, ...]) -> None:
    _, *words = call
    if words[:1] != ["COMMAND"]:
        assert wrong(words) is None, words


@pytest.mark.parametrize("words", [["sumbit", "a"], ["ls", "--state", "running"], ["dead-letter", "list"]])
def test_a_wrong_call_is_found(words: list[str]) -> None:
    assert wrong(words)


def test_targets_of_make_and_modules_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in PAGES:
        text = page.read_text("utf-8")
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, f"{page.name}: {named - targets}"
        for module in re.findall(r"python -m ([\w.]+)", text):
            assert module.split(".")[0] not in OURS or importlib.util.find_spec(module), f"{page.name}: {module}"


@each_page
def test_settings_exist(page: Path) -> None:
    named = set(re.findall(r"\bSAFELIGHT_[A-Z0-9_]+\b(?!…)", page.read_text("utf-8")))
    known = {f"SAFELIGHT_{name.upper()}" for name in Settings.model_fields}
    assert named <= known | OTHER_VARIABLES, named - known


@pytest.mark.parametrize("snippet", snippets("python"), ids=lambda snippet: snippet.name)
def test_python_compiles_and_its_names_are_there(snippet: Snippet) -> None:
    tree = ast.parse(snippet.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "client" and "tasks" in snippet.text:
            assert hasattr(Client, node.attr) or hasattr(AsyncClient, node.attr), ast.unparse(node)
