"""Pipelines over a UNet."""

from typing import Any

import diffusers
import torch
import transformers

from . import parts, tokenizers

DOWN = ("DownBlock2D", "CrossAttnDownBlock2D")
UP = ("CrossAttnUpBlock2D", "UpBlock2D")


def stable_diffusion(seed: int = 0) -> Any:
    """StableDiffusionPipeline: UNet of two levels, VAE of factor 2, DDIM; sizes are multiples of 8."""
    torch.manual_seed(seed)
    pipeline = diffusers.StableDiffusionPipeline(
        vae=parts.vae(latent_channels=4),
        text_encoder=parts.clip(transformers.CLIPTextModel),
        tokenizer=tokenizers.bundled(),
        unet=_unet(cross_attention_dim=parts.WIDTH),
        scheduler=_ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    return parts.amplify(pipeline, pipeline.unet)


def stable_diffusion_xl(seed: int = 0) -> Any:
    """StableDiffusionXLPipeline: two text encoders, a pooled text and the picture's size as conditions, Euler."""
    torch.manual_seed(seed)
    time_dim = 8
    pipeline = diffusers.StableDiffusionXLPipeline(
        vae=parts.vae(latent_channels=4),
        text_encoder=parts.clip(transformers.CLIPTextModel),
        tokenizer=tokenizers.bundled(),
        text_encoder_2=parts.clip(transformers.CLIPTextModelWithProjection),
        tokenizer_2=tokenizers.bundled(),
        unet=_unet(
            cross_attention_dim=2 * parts.WIDTH,
            addition_embed_type="text_time",
            addition_time_embed_dim=time_dim,
            projection_class_embeddings_input_dim=6 * time_dim + parts.WIDTH,
        ),
        scheduler=diffusers.EulerDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1
        ),
    )
    return parts.amplify(pipeline, pipeline.unet)


def stable_diffusion_controlnet(seed: int = 0) -> Any:
    """StableDiffusionControlNetPipeline: as `stable_diffusion`, with a picture that the result follows."""
    torch.manual_seed(seed)
    controlnet = diffusers.ControlNetModel(
        block_out_channels=(16, parts.WIDTH),
        layers_per_block=1,
        down_block_types=DOWN,
        cross_attention_dim=parts.WIDTH,
        attention_head_dim=4,
        norm_num_groups=8,
        conditioning_embedding_out_channels=(8, 16),
    ).eval()
    _wake(controlnet)
    pipeline = diffusers.StableDiffusionControlNetPipeline(
        vae=parts.vae(latent_channels=4),
        text_encoder=parts.clip(transformers.CLIPTextModel),
        tokenizer=tokenizers.bundled(),
        unet=_unet(cross_attention_dim=parts.WIDTH),
        controlnet=controlnet,
        scheduler=_ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    return parts.amplify(pipeline, pipeline.unet)


def _unet(cross_attention_dim: int, **conditions: Any) -> Any:
    return diffusers.UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(16, parts.WIDTH),
        layers_per_block=1,
        down_block_types=DOWN,
        up_block_types=UP,
        cross_attention_dim=cross_attention_dim,
        attention_head_dim=4,
        norm_num_groups=8,
        **conditions,
    )


def _ddim() -> Any:
    return diffusers.DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
    )


def _wake(controlnet: Any) -> None:
    """A fresh ControlNet ends in zeros and says nothing."""
    with torch.no_grad():
        for name, parameter in controlnet.named_parameters():
            if name.startswith(("controlnet_", "controlnet_cond_embedding.conv_out")):
                parameter.normal_(std=0.3)
