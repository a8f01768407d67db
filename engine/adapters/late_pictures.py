"""Pictures that a pipeline hands out as they are on the device, where it would have waited for their copy.

diffusers' image and video processors end with the same tensor whether an array or a tensor is asked for; an array is
then its copy with the colours last. Whoever takes the tensor makes that copy.
"""

import copy
import functools
from typing import Any

from diffusers.image_processor import VaeImageProcessor

PROCESSORS = ("image_processor", "video_processor")


def let_pictures_stay(view: Any) -> None:
    """On the view of a pipeline of diffusers' own, whose code does nothing with a picture but hand it out."""
    if not type(view).__module__.startswith("diffusers."):
        return
    for name in PROCESSORS:
        processor = vars(view).get(name)
        if isinstance(processor, VaeImageProcessor) and type(processor).postprocess is VaeImageProcessor.postprocess:
            vars(view)[name] = _late(processor)


def _late(processor: Any) -> Any:
    late = copy.copy(processor)
    for name in ("postprocess", "postprocess_video"):
        if hasattr(processor, name):
            vars(late)[name] = _asked_for_tensors(getattr(late, name))
    return late


def _asked_for_tensors(method: Any) -> Any:
    @functools.wraps(method)
    def asked(pictures: Any, output_type: str = "pil", *args: Any, **kwargs: Any) -> Any:
        return method(pictures, "pt" if output_type == "np" else output_type, *args, **kwargs)

    return asked
