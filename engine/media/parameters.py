"""How an output was made, in the two forms that files carry: the de-facto text, and JSON."""

import json
from collections.abc import Mapping
from typing import Any

from PIL import ExifTags, Image

from ..result import Media

#: a JPEG segment holds 65 533 bytes, its "Exif" mark among them
MAX_EXIF_BYTES = 65_000


def parameters_text(media: Media, parameters: Mapping[str, Any]) -> str:
    """The de-facto `parameters` text: prompt, negative prompt, one line of settings."""
    settings = {
        "Steps": parameters.get("num_inference_steps"),
        "Sampler": parameters.get("noise_scheduler"),
        "CFG scale": parameters.get("guidance_scale"),
        "Seed": media.seed,
        "Size": None if media.size is None else "x".join(map(str, media.size)),
        "Frames": media.num_frames,
        "FPS": None if media.fps is None else f"{media.fps:g}",
        "Model": parameters.get("model"),
        "Denoising strength": parameters.get("strength"),
    }
    lines = [str(parameters.get("prompt", ""))]
    if parameters.get("negative_prompt"):
        lines.append(f"Negative prompt: {parameters['negative_prompt']}")
    lines.append(", ".join(f"{name}: {_quoted(value)}" for name, value in settings.items() if value is not None))
    return "\n".join(lines).replace("\0", "\N{REPLACEMENT CHARACTER}")


def parameters_json(media: Media, parameters: Mapping[str, Any], *, ascii_only: bool = False) -> str:
    return json.dumps({**parameters, "seed": media.seed}, ensure_ascii=ascii_only)


def exif(media: Media, parameters: Mapping[str, Any] | None) -> bytes:
    """The text as UserComment and the JSON, in ASCII, as ImageDescription; the JSON, then the text, give way."""
    if parameters is None:
        return b""
    tags = Image.Exif()
    comment = b"UNICODE\0" + parameters_text(media, parameters).encode("utf-16-be")
    tags.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = comment
    tags[ExifTags.Base.ImageDescription] = parameters_json(media, parameters, ascii_only=True)
    if len(tags.tobytes()) > MAX_EXIF_BYTES:
        del tags[ExifTags.Base.ImageDescription]
    data = tags.tobytes()
    return data if len(data) <= MAX_EXIF_BYTES else b""


def container_tags(media: Media, parameters: Mapping[str, Any] | None, text_tag: str | None) -> dict[str, str]:
    """For the containers of video and sound: the JSON as `comment`, the text as `text_tag` if it has room for one."""
    if parameters is None:
        return {}
    texts = {} if text_tag is None else {text_tag: parameters_text(media, parameters)}
    return {"comment": parameters_json(media, parameters), **texts}


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',:\n"') else text
