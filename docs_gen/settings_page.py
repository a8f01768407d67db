"""Every `SAFELIGHT_*` variable."""

from __future__ import annotations

from docs_gen.fields import kind, meanings, schemas, shown, table
from tasks.settings import Settings

_HEAD = """# Settings

Environment variables, read once at the start. A wrong one stops the process with its name; an empty one counts as
unset. API, workers and producers read the same ones: give them the same `SAFELIGHT_REDIS_URL`, `SAFELIGHT_KEY_PREFIX`,
bucket and models file. Names that end in `_S` are seconds. `safelight` also reads `.local/env` of a stack that
`safelight up` runs in the same folder.

Credentials of the object store are AWS's own: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or whatever else boto3
finds.
"""


def settings_page() -> str:
    told, parts = meanings(Settings), schemas(Settings)
    rows = []
    for name, field in Settings.model_fields.items():
        default = "host name" if field.default_factory else shown(field.default)
        rows.append([f"`SAFELIGHT_{name.upper()}`", default.replace("–", "unset"), kind(parts[name]), told[name]])
    return _HEAD + "\n" + table(["variable", "default", "value", "meaning"], rows)
