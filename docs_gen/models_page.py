"""Every key of a models file."""

from __future__ import annotations

from pydantic import BaseModel

from docs_gen.fields import kind, meanings, schemas, shown, table
from tasks.models import ModelDefaults, ModelLimits, ModelSpec

_HEAD = """# The models file

TOML; one table for each model, whose name is what a request's `model` says. The first is the default. Workers and the
API read the same file (`SAFELIGHT_MODELS`). A key that is unknown, or a default outside the model's own limits, stops
the start and names itself. [models.example.toml](../../models.example.toml) has entries to copy, with the memory that
each takes.

```toml
[sdxl]
source = "stabilityai/stable-diffusion-xl-base-1.0"
dtype = "float16"
device = "cuda"
max_batch_rows = 4
defaults = { height = 1024, width = 1024, num_inference_steps = 30, guidance_scale = 6.0 }
limits = { size_multiple = 8, max_size = 1536, max_steps = 80 }
```
"""


def models_page() -> str:
    parts = [_HEAD, "## A model\n", _rows(ModelSpec, ("name", "defaults", "limits"))]
    parts += ["\n## `defaults`\n\nOf a request that leaves the field out.\n", _rows(ModelDefaults)]
    parts += [
        "\n## `limits`\n\nA request beyond one is refused with the field's name (HTTP 422).\n",
        _rows(ModelLimits),
    ]
    return "\n".join(parts)


def _rows(model: type[BaseModel], left_out: tuple[str, ...] = ()) -> str:
    told, parts = meanings(model), schemas(model)
    fields = {name: field for name, field in model.model_fields.items() if name not in left_out}
    defaults = {
        name: "required" if field.is_required() else shown(field.get_default(call_default_factory=True))
        for name, field in fields.items()
    }
    rows = [[f"`{name}`", defaults[name], kind(parts[name]), told[name]] for name in fields]
    return table(["key", "default", "value", "meaning"], rows)
