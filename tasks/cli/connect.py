"""From the environment to a client, with one convenience: the folder of a running `safelight up` is picked up."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.errors import ConfigError

if TYPE_CHECKING:
    from tasks.client import Client
    from tasks.settings import Settings


def note(text: str) -> None:
    """Words for a person; stdout belongs to results."""
    print(text, file=sys.stderr, flush=True)


def settings_here() -> Settings:
    """The settings of this shell, or of the local stack of this folder if the shell names no Redis.

    Raises `ConfigError`. The object store's credentials go into this process's environment, where boto3 looks for them.
    """
    from tasks.settings import read_settings

    adopt_local_stack()
    return read_settings()


def adopt_local_stack() -> None:
    from tasks.local.environment import ENV_FILE, read_env_file

    if "SAFELIGHT_REDIS_URL" in os.environ or not ENV_FILE.is_file():
        return
    try:
        variables = read_env_file(ENV_FILE)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{ENV_FILE}: cannot be read: {error}; set SAFELIGHT_REDIS_URL, or remove it") from None
    os.environ.update(variables)
    note(f"safelight: SAFELIGHT_REDIS_URL is not set; using the local stack of {ENV_FILE}")


def open_client() -> Client:
    """A client for this shell. Raises `ConfigError`; connects at its first call."""
    from tasks.client import Client

    return Client(settings_here())


def model_names(client: Client) -> Sequence[str]:
    """Names in the models file; while that cannot be read, which is then noted, of the models that Redis knows."""
    try:
        return client.models.names
    except ConfigError as error:
        note(f"safelight: {error}; showing the models that had jobs lately")
        return client.store.known_models()
