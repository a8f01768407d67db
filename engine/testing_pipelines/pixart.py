"""PixArt and its descendant: transformers with cross-attention to a masked text."""

from typing import Any

import diffusers
import torch
import transformers

from . import parts, tokenizers


def pixart_sigma(seed: int = 0) -> Any:
    """PixArtSigmaPipeline: T5, DPM++; sizes are multiples of 8."""
    torch.manual_seed(seed)
    pipeline = diffusers.PixArtSigmaPipeline(
        tokenizer=tokenizers.t5(),
        text_encoder=parts.t5(),
        vae=parts.vae(latent_channels=4),
        transformer=diffusers.PixArtTransformer2DModel(
            sample_size=16,
            num_layers=1,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_channels=parts.WIDTH,
            in_channels=4,
            out_channels=8,
            cross_attention_dim=parts.WIDTH,
        ),
        scheduler=diffusers.DPMSolverMultistepScheduler(),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def sana(seed: int = 0) -> Any:
    """SanaPipeline: Gemma with instructions before the prompt, linear attention, a deep-compression VAE; sizes x 32."""
    torch.manual_seed(seed)
    config = transformers.Gemma2Config(
        vocab_size=parts.VOCABULARY,
        hidden_size=parts.WIDTH,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        attn_implementation="eager",
    )
    pipeline = diffusers.SanaPipeline(
        tokenizer=tokenizers.qwen(),
        text_encoder=transformers.Gemma2Model(config).eval(),
        vae=_deep_compression_vae(),
        transformer=diffusers.SanaTransformer2DModel(
            in_channels=4,
            out_channels=4,
            num_layers=1,
            num_attention_heads=4,
            attention_head_dim=8,
            num_cross_attention_heads=4,
            cross_attention_head_dim=8,
            cross_attention_dim=parts.WIDTH,
            caption_channels=parts.WIDTH,
            sample_size=16,
        ),
        scheduler=diffusers.DPMSolverMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def _deep_compression_vae() -> Any:
    return diffusers.AutoencoderDC(
        latent_channels=4,
        attention_head_dim=4,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        downsample_block_type="conv",
        upsample_block_type="interpolate",
    ).eval()
