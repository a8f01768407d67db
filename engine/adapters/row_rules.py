"""What a pipeline's signature does not say about rows of one call, by class name. Found by reading and comparing.

A rule that is missing here must cost speed, never a wrong picture: what is not known to keep rows apart is not mixed.
"""

#: Take a list of conditioning images as one image a row. In others a list may mean several images of the one row.
IMAGE_A_ROW = frozenset(
    {
        "LTXImageToVideoPipeline",
        "StableDiffusionControlNetPipeline",
        "StableDiffusionXLControlNetPipeline",
    }
)

#: Pad their texts to the longest of the call and let the model see the padding, so that lengths must be equal.
SEES_PADDING = frozenset({"AudioLDM2Pipeline"})

FRAME_RATES = ("frame_rate", "fps")
DURATIONS_S = ("audio_end_in_s", "audio_length_in_s")
#: of a video from a pipeline that has no frame rate among its arguments; Wan's own examples play at this one
FALLBACK_FPS = 16.0
