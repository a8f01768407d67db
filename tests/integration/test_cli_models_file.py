"""Which commands need the models file, and which do without it."""

from __future__ import annotations

import pytest

from tasks import Client
from tests.integration.test_cli import Cli, cli, client

__all__ = ["cli", "client"]


def test_only_what_makes_a_job_reads_the_models_file(cli: Cli, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    live, ended = (client.submit(prompt=str(n)).id for n in range(2))
    client.abort(ended)
    monkeypatch.setenv("SAFELIGHT_MODELS", "/nowhere.toml")
    for words in (["ls"], ["status", live], ["explain", live], ["watch", "--group", "none"], ["dead-letter", "ls"]):
        assert cli(*words).code == 0, words
    assert cli("watch", ended, "--json").code == 3
    for words in (["queues"], ["top", "--once"]):
        said = cli(*words)
        assert said.code == 0 and "tiny" in said.out and "/nowhere.toml" in said.err
    assert cli("abort", live).code == 0
    for words in (["submit", "a boat"], ["replay", ended], ["models"]):
        said = cli(*words)
        assert said.code == 2 and "/nowhere.toml" in said.err
