"""For a name that is no field of a request: the field that was probably meant. Pure.

Two sources: the words of neighbouring systems (A1111, ComfyUI, diffusers, fal, OpenAI, Replicate), and closeness.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

#: A field, and what others call it. Spelled as here, in camelCase or with dashes: see `_plain`.
_SYNONYMS: Mapping[str, str] = {
    "model": "version checkpoint ckpt ckpt_name sd_model_checkpoint model_id model_name endpoint",
    "prompt": "text text_prompt positive positive_prompt caption description prompts",
    "negative_prompt": "negative neg_prompt uc",
    "num_inference_steps": "steps num_steps inference_steps sampling_steps sample_steps ddim_steps n_steps",
    "guidance_scale": "cfg cfg_scale guidance guidance_strength scale unconditional_guidance_scale true_cfg_scale",
    "seed": "noise_seed random_seed seeds generator",
    "num_outputs": "n num_images num_samples num_images_per_prompt num_videos batch_size batch_count n_iter n_samples",
    "image": "image_url image_uri init_image init_images input_image input_reference start_image reference_image",
    "mask_image": "mask mask_url mask_uri mask_image_url mask_input inpaint_mask",
    "strength": "denoise denoising_strength prompt_strength image_strength img2img_strength",
    "num_frames": "frames length video_length frame_count",
    "fps": "frame_rate frames_per_second",
    "duration_s": "duration seconds audio_length_in_s audio_length seconds_total",
    "noise_scheduler": "scheduler scheduler_name sampler sampler_name sampler_index sampling_method solver",
    "loras": "lora lora_weights lora_scale lora_url lora_scales hf_lora weight",
    "output_format": "format image_format file_format file_type",
    "priority": "low_priority queue_priority",
    "deadline_s": "timeout timeout_s cancel_after execution_timeout expires ttl",
    "webhook_url": "webhook callback callback_url webhook_uri hook fal_webhook",
    "preview_every": "preview previews partial_images live_previews",
    "output_prefix": "filename_prefix save_path output_folder prefix",
    "metadata": "user tags labels extra user_id",
    "width and height": "size image_size aspect_ratio resolution dimensions megapixels",
}
#: The same of one of its adapters.
_LORA_SYNONYMS: Mapping[str, str] = {
    "name": "path url model id lora_name file adapter adapter_name",
    "scale": "weight strength strength_model lora_scale factor alpha",
}
#: Names that wrap a request elsewhere, and what stands outside of one here.
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("input", "inputs", "parameters", "payload"), "what is in it is the request itself"),
    "idempotency_key": "over HTTP it is the header Idempotency-Key",
    "wait": "GET /v1/jobs/{id}?wait=SECONDS waits for the end",
    "stream": "GET /v1/jobs/{id}/events tells progress, previews and the end",
}
UNKNOWN = "is not a field of a request"
_UNKNOWN_OF_LORA = "is not a field of a LoRA"
#: Longer names are no slip of the pen, and may be megabytes.
_MAX_LENGTH = 64
_CLOSE = 0.78


class Vocabulary:
    """Names of fields in any spelling, their synonyms, and what is close to either."""

    def __init__(self, fields: Iterable[str], synonyms: Mapping[str, str]) -> None:
        self._meanings = {_plain(word): field for field, words in synonyms.items() for word in words.split()}
        self._meanings |= {_plain(field): field for field in fields}

    def meaning(self, name: str) -> str | None:
        """The field, or None: nobody would guess."""
        if len(name) > _MAX_LENGTH:
            return None
        plain = _plain(name)
        near = [plain] if plain in self._meanings else difflib.get_close_matches(plain, self._meanings, 1, _CLOSE)
        return self._meanings[near[0]] if near else None


def _plain(name: str) -> str:
    """Without what is only spelling: `numInferenceSteps`, `num-inference-steps` and `num_inference_steps` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


class FieldWords:
    """The words of a request and of its adapters; `tasks.request` has the one instance."""

    def __init__(self, fields: Iterable[str], lora_fields: Iterable[str]) -> None:
        self.of_request = Vocabulary(fields, _SYNONYMS)
        self._of_lora = Vocabulary(lora_fields, _LORA_SYNONYMS)

    def unknown(self, path: Sequence[object]) -> str:
        """What to tell of a name that is no field: that, and what was probably meant. `path` leads to the name."""
        name = str(path[-1])
        message, words = (UNKNOWN, self.of_request) if len(path) == 1 else (_UNKNOWN_OF_LORA, self._of_lora)
        if len(path) == 1 and name in _ELSEWHERE:
            return f"{message}; {_ELSEWHERE[name]}"
        meant = words.meaning(name)
        return message if meant is None else f"{message}; did you mean {meant}?"
