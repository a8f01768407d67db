"""How tenants share the workers, from `SAFELIGHT_TENANTS`: weights, and limits on queued and running rows.

A TOML file: a table for each tenant, `[default]` for all others, `[groups]` for each group of jobs.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.errors import ConfigError, InvalidRequest

#: The tenant of keys without a name, of everybody while no key is set, and of producers that name none.
DEFAULT_TENANT = "default"
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_GROUPS = "groups"
T = TypeVar("T", bound=BaseModel)


class Limits(BaseModel):
    """Rows, that is outputs, of jobs that wait or run; None: as many as come."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_queued_rows: Annotated[int, Field(ge=1)] | None = None
    max_running_rows: Annotated[int, Field(ge=1)] | None = None


class Share(Limits):
    #: While several tenants wait for one model, each gets rows in proportion to its weight.
    weight: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] = 1.0


class Quotas(BaseModel):
    """Pure data. `text` is what the script of the store reads."""

    model_config = ConfigDict(frozen=True)

    tenants: Mapping[str, Share] = {}
    default: Share = Share()
    groups: Limits = Limits()

    def of(self, tenant: str) -> Share:
        return self.tenants.get(tenant, self.default)

    @property
    def limits_running(self) -> bool:
        """Whether a job may have to wait although a worker is free."""
        every = (*self.tenants.values(), self.default, self.groups)
        return any(one.max_running_rows is not None for one in every)

    @property
    def text(self) -> str:
        """Compact JSON: [weight, queued, running] for each tenant, 0 for no limit; '' if nothing is set at all."""
        if self == Quotas():
            return ""
        tenants = {name: _numbers(share) for name, share in self.tenants.items()}
        groups = _numbers(self.groups)
        return json.dumps({"tenants": tenants, "default": _numbers(self.default), "groups": groups})


def _numbers(limits: Limits) -> list[float]:
    weight = limits.weight if isinstance(limits, Share) else 1.0
    return [weight, limits.max_queued_rows or 0, limits.max_running_rows or 0]


NO_QUOTAS = Quotas()


def standings(rows: Mapping[str, tuple[int, int]], quotas: Quotas) -> list[dict[str, Any]]:
    """What an operator sees of each tenant that is configured or has queued and running `rows`; by name."""
    names = sorted(rows.keys() | quotas.tenants.keys())
    found = ((name, rows.get(name, (0, 0)), quotas.of(name)) for name in names)
    return [
        {"tenant": name, "queued_rows": queued, "running_rows": running, **share.model_dump()}
        for name, (queued, running), share in found
    ]


def check_tenant(tenant: str) -> str:
    """The name itself. Raises `InvalidRequest` for one that no key could have."""
    if not TENANT.fullmatch(tenant):
        raise InvalidRequest(
            "tenant", "must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-', and begin with none of the last two"
        )
    return tenant


def load_quotas(path: Path | None) -> Quotas:
    """Read the file; None: all are equal and none is limited. Raises `ConfigError` naming file, table and entry."""
    if path is None:
        return NO_QUOTAS
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"SAFELIGHT_TENANTS: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"SAFELIGHT_TENANTS: {path} is not TOML: {error}") from None
    groups = _table(path, _GROUPS, tables.pop(_GROUPS, {}), Limits)
    shares = {name: _table(path, name, table, Share) for name, table in tables.items()}
    return Quotas(tenants=shares, default=shares.get(DEFAULT_TENANT, Share()), groups=groups)


def _table(path: Path, name: str, table: object, kind: type[T]) -> T:
    if not isinstance(table, dict):
        raise ConfigError(f"SAFELIGHT_TENANTS: {path}: {name}: each entry is a table, [{name}]")
    if not TENANT.fullmatch(name):
        raise ConfigError(f"SAFELIGHT_TENANTS: {path}: [{name}]: no tenant can have this name")
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        entry = ".".join([name, *(str(part) for part in first["loc"])])
        raise ConfigError(f"SAFELIGHT_TENANTS: {path}: [{entry}]: {first['msg']}") from None
