"""Pipelines that make `[T, H, W, 3]`. The frames of each are four for a latent one, and one more."""

from typing import Any

import diffusers
import torch
import transformers

from . import parts, tokenizers

LATENT_CHANNELS = 4
TEMPORAL_FACTOR = 4
#: No entry of the real ones: the size of the engine's own tries, in latents, which must stay small here.
SAMPLE_SIZE = 8


def wan(seed: int = 0) -> Any:
    """WanPipeline, text to video: UMT5, UniPC, a VAE that remembers frames; sizes are multiples of 8."""
    torch.manual_seed(seed)
    pipeline = diffusers.WanPipeline(
        tokenizer=tokenizers.t5(),
        text_encoder=_umt5(),
        vae=_wan_vae(),
        scheduler=_flow_unipc(),
        transformer=_wan_transformer(in_channels=LATENT_CHANNELS),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def wan_image_to_video(seed: int = 0) -> Any:
    """WanImageToVideoPipeline as of Wan 2.2, without an image encoder; sizes are multiples of 16."""
    torch.manual_seed(seed)
    pipeline = diffusers.WanImageToVideoPipeline(
        tokenizer=tokenizers.t5(),
        text_encoder=_umt5(),
        vae=_wan_vae(),
        scheduler=_flow_unipc(),
        transformer=_wan_transformer(in_channels=2 * LATENT_CHANNELS + TEMPORAL_FACTOR),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def ltx(seed: int = 0) -> Any:
    """LTXPipeline, text to video: T5, packed latents, the frame rate as an input; sizes are multiples of 32."""
    torch.manual_seed(seed)
    latent_channels = 8
    pipeline = diffusers.LTXPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_ltx_vae(latent_channels),
        text_encoder=parts.t5(),
        tokenizer=tokenizers.t5(max_length=128),
        transformer=diffusers.LTXVideoTransformer3DModel(
            in_channels=latent_channels,
            out_channels=latent_channels,
            num_attention_heads=4,
            attention_head_dim=8,
            cross_attention_dim=parts.WIDTH,
            num_layers=1,
            caption_channels=parts.WIDTH,
        ),
    )
    pipeline.transformer.register_to_config(sample_size=SAMPLE_SIZE)
    return parts.amplify(pipeline, pipeline.transformer)


def _umt5() -> Any:
    config = transformers.UMT5Config(
        vocab_size=parts.VOCABULARY, d_model=parts.WIDTH, d_kv=8, d_ff=64, num_layers=1, num_heads=4
    )
    return transformers.UMT5EncoderModel(config).eval()


def _flow_unipc() -> Any:
    return diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def _wan_transformer(in_channels: int) -> Any:
    transformer = diffusers.WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=in_channels,
        out_channels=LATENT_CHANNELS,
        text_dim=parts.WIDTH,
        freq_dim=16,
        ffn_dim=64,
        num_layers=1,
        rope_max_seq_len=64,
    )
    transformer.register_to_config(sample_size=SAMPLE_SIZE)
    return transformer


def _wan_vae() -> Any:
    return diffusers.AutoencoderKLWan(
        base_dim=8,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[True, True],
        latents_mean=[0.0] * LATENT_CHANNELS,
        latents_std=[1.0] * LATENT_CHANNELS,
        scale_factor_temporal=TEMPORAL_FACTOR,
        scale_factor_spatial=4,
    ).eval()


def _ltx_vae(latent_channels: int) -> Any:
    return diffusers.AutoencoderKLLTXVideo(
        latent_channels=latent_channels,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1),
        decoder_layers_per_block=(1, 1, 1, 1, 1),
        spatio_temporal_scaling=(True, True, False, False),
        decoder_spatio_temporal_scaling=(True, True, False, False),
        patch_size=1,
    ).eval()
