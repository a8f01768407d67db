"""Transformers that see text and picture in one attention, trained with flow matching."""

from typing import Any

import diffusers
import torch
import transformers

from . import parts, tokenizers


def stable_diffusion_3(seed: int = 0) -> Any:
    """StableDiffusion3Pipeline: a flow-matching transformer with two CLIP encoders and a T5."""
    torch.manual_seed(seed)
    pipeline = diffusers.StableDiffusion3Pipeline(
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=16,
            patch_size=1,
            in_channels=4,
            num_layers=1,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_projection_dim=parts.WIDTH,
            joint_attention_dim=2 * parts.WIDTH,
            pooled_projection_dim=2 * parts.WIDTH,
            out_channels=4,
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=parts.vae(latent_channels=4),
        text_encoder=parts.clip(transformers.CLIPTextModelWithProjection),
        tokenizer=tokenizers.bundled(),
        text_encoder_2=parts.clip(transformers.CLIPTextModelWithProjection),
        tokenizer_2=tokenizers.bundled(),
        text_encoder_3=parts.t5(2 * parts.WIDTH),
        tokenizer_3=tokenizers.bundled(),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def flux(seed: int = 0) -> Any:
    """FluxPipeline, guidance-distilled: packed latents, a CLIP and a T5 encoder, no classifier-free guidance."""
    torch.manual_seed(seed)
    pipeline = diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=parts.WIDTH,
            pooled_projection_dim=parts.WIDTH,
            axes_dims_rope=(4, 4, 8),
            guidance_embeds=True,
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=parts.vae(latent_channels=1),
        text_encoder=parts.clip(transformers.CLIPTextModel),
        tokenizer=tokenizers.bundled(),
        text_encoder_2=parts.t5(parts.WIDTH),
        tokenizer_2=tokenizers.bundled(),
    )
    return parts.amplify(pipeline, pipeline.transformer)
