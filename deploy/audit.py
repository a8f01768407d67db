"""Asks osv.dev for known vulnerabilities of what is installed. Fails for a finding, never for a service that is away.

A vulnerability that does not reach us is named in pyproject.toml, [tool.safelight.audit], with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

COMMAND = ("-m", "pip_audit", "--vulnerability-service", "osv", "--skip-editable", "--progress-spinner", "off")
PATIENCE_S = 300


def findings(report: str, ignored: dict[str, str]) -> list[str]:
    """A line for each vulnerability that is not ignored. Raises ValueError for what is no report."""
    lines = []
    for package in json.loads(report)["dependencies"]:
        for found in package.get("vulns", ()):
            if not ignored.keys() & {found["id"], *found.get("aliases", ())}:
                fixed = ", ".join(found.get("fix_versions", ())) or "no version yet"
                lines.append(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    return lines


def verdict(report: str, complaint: str, ignored: dict[str, str]) -> tuple[str, int]:
    """What to say, and the exit code."""
    try:
        found = findings(report, ignored)
    except (ValueError, KeyError, TypeError):
        reason = next((line for line in reversed(complaint.splitlines()) if line.strip()), "it gave no answer")
        return f"note: osv.dev could not be asked, so known vulnerabilities were not looked for ({reason[:200]})", 0
    unused = f" ({len(ignored)} ignored with a reason)" if ignored else ""
    return ("\n".join(found), 1) if found else (f"no known vulnerabilities{unused}", 0)


def main() -> int:
    project: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    ignored: dict[str, str] = project["tool"]["safelight"]["audit"]["ignore"]
    try:
        done = subprocess.run(
            [sys.executable, *COMMAND, "--format", "json"], capture_output=True, text=True, timeout=PATIENCE_S
        )
        report, complaint = done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        report, complaint = "", f"no answer in {PATIENCE_S} s"
    text, code = verdict(report, complaint, ignored)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
