"""A job without the bytes of its input pictures, for answers that carry many jobs."""

from __future__ import annotations

from typing import Any

from tasks.job import Job

#: What stands in place of the bytes.
CUT = "..."
_KEPT = 64


def brief(job: Job) -> dict[str, Any]:
    """`Job.to_json`, with each longer `data:` URI cut after its media type: `data:image/png;base64,...`."""
    data = job.to_json()
    for field in ("image", "mask_image"):
        uri = data["request"].get(field)
        if uri and uri.startswith("data:") and len(uri) > _KEPT:
            data["request"][field] = uri[:_KEPT].partition(",")[0] + "," + CUT
    return data
