"""A rough picture on its way as an event: small, lossy and inline, so that a page can show it at once."""

from __future__ import annotations

import base64
import io

from PIL import Image

_MAX_SIDE, _QUALITY = 256, 70


def preview_data(step: int, image: Image.Image) -> dict[str, object]:
    """The data of a `preview` event: the step, and a JPEG of at most 256 pixels a side as a `data:` URI."""
    small = image.convert("RGB")
    small.thumbnail((_MAX_SIDE, _MAX_SIDE))
    body = io.BytesIO()
    small.save(body, "JPEG", quality=_QUALITY)
    return {
        "step": step,
        "width": small.width,
        "height": small.height,
        "image": "data:image/jpeg;base64," + base64.b64encode(body.getvalue()).decode(),
    }
