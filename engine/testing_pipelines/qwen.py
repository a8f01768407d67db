"""Pipelines that read their prompts with a Qwen language model, inside a chat."""

from typing import Any

import diffusers
import torch
import transformers

from . import parts, tokenizers

LANGUAGE_MODEL = {
    "vocab_size": parts.VOCABULARY,
    "hidden_size": parts.WIDTH,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def qwen_image(seed: int = 0) -> Any:
    """QwenImagePipeline: texts of varying length with a mask, true classifier-free guidance in two calls."""
    torch.manual_seed(seed)
    latent_channels = 4
    pipeline = diffusers.QwenImagePipeline(
        transformer=diffusers.QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=4 * latent_channels,
            out_channels=latent_channels,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=parts.WIDTH,
            axes_dims_rope=(4, 6, 6),
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKLQwenImage(
            base_dim=8,
            z_dim=latent_channels,
            dim_mult=[1, 1],
            num_res_blocks=1,
            temperal_downsample=[False],
            latents_mean=[0.0] * latent_channels,
            latents_std=[1.0] * latent_channels,
        ).eval(),
        text_encoder=_qwen_vl(),
        tokenizer=tokenizers.qwen(),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def z_image(seed: int = 0) -> Any:
    """ZImagePipeline: its transformer takes lists of latents and of texts, each of a length of its own."""
    torch.manual_seed(seed)
    pipeline = diffusers.ZImagePipeline(
        transformer=diffusers.ZImageTransformer2DModel(
            in_channels=4,
            dim=parts.WIDTH,
            n_layers=1,
            n_refiner_layers=1,
            n_heads=2,
            n_kv_heads=2,
            cap_feat_dim=parts.WIDTH,
            axes_dims=[4, 6, 6],
            axes_lens=[1024, 64, 64],
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=parts.vae(latent_channels=4),
        text_encoder=transformers.Qwen3Model(transformers.Qwen3Config(head_dim=16, **LANGUAGE_MODEL)).eval(),
        tokenizer=tokenizers.qwen(),
    )
    # No entry of the real ones: the size of the engine's own tries, which must stay small here.
    pipeline.transformer.register_to_config(sample_size=16)
    return parts.amplify(pipeline, pipeline.transformer)


def _qwen_vl() -> Any:
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1_000_000.0}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**LANGUAGE_MODEL, "rope_parameters": rope},
        vision_config={"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32},
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config).eval()
