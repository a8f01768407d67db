"""Random diffusers pipelines of a few hundred kilobytes, built from configs: for tests of adapters, offline and fast.

Needs the `worker` extra. The pictures mean nothing, but every input (prompt, negative prompt, seed, guidance) shows in
them, which is what a test of mixing needs. All read their prompts with the tokenizer of the bundled model.
"""

from typing import Any

import diffusers
import torch
import transformers

from .adapters.loading import MODELS

TOKENS = 32
WIDTH = 32


def stable_diffusion(seed: int = 0) -> Any:
    """StableDiffusionPipeline: UNet of two levels, VAE of factor 2, DDIM; sizes are multiples of 8."""
    torch.manual_seed(seed)
    pipeline = diffusers.StableDiffusionPipeline(
        vae=_vae(latent_channels=4),
        text_encoder=_clip(transformers.CLIPTextModel),
        tokenizer=_tokenizer(),
        unet=diffusers.UNet2DConditionModel(
            sample_size=16,
            in_channels=4,
            out_channels=4,
            block_out_channels=(16, WIDTH),
            layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=WIDTH,
            attention_head_dim=4,
            norm_num_groups=8,
        ),
        scheduler=diffusers.DDIMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    return _amplify(pipeline, pipeline.unet)


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
            caption_projection_dim=WIDTH,
            joint_attention_dim=2 * WIDTH,
            pooled_projection_dim=2 * WIDTH,
            out_channels=4,
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(latent_channels=4),
        text_encoder=_clip(transformers.CLIPTextModelWithProjection),
        tokenizer=_tokenizer(),
        text_encoder_2=_clip(transformers.CLIPTextModelWithProjection),
        tokenizer_2=_tokenizer(),
        text_encoder_3=_t5(2 * WIDTH),
        tokenizer_3=_tokenizer(),
    )
    return _amplify(pipeline, pipeline.transformer)


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
            joint_attention_dim=WIDTH,
            pooled_projection_dim=WIDTH,
            axes_dims_rope=(4, 4, 8),
            guidance_embeds=True,
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(latent_channels=1),
        text_encoder=_clip(transformers.CLIPTextModel),
        tokenizer=_tokenizer(),
        text_encoder_2=_t5(WIDTH),
        tokenizer_2=_tokenizer(),
    )
    return _amplify(pipeline, pipeline.transformer)


def _tokenizer() -> Any:
    return transformers.CLIPTokenizer.from_pretrained(str(MODELS / "tiny" / "tokenizer"))


def _clip(kind: Any) -> Any:
    config = transformers.CLIPTextConfig(
        vocab_size=1000,
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        projection_dim=WIDTH,
        max_position_embeddings=TOKENS,
        bos_token_id=0,
        eos_token_id=2,
    )
    return kind(config).eval()


def _t5(width: int) -> Any:
    config = transformers.T5Config(vocab_size=1000, d_model=width, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
    return transformers.T5EncoderModel(config).eval()


def _vae(latent_channels: int) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=(16, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=8,
        sample_size=32,
        shift_factor=0.0,
    ).eval()


def _amplify(pipeline: Any, denoiser: Any) -> Any:
    """Fresh weights hardly listen to the text; make the text louder so that a mixed-up row shows."""
    with torch.no_grad():
        for name, module in pipeline.components.items():
            if name.startswith("text_encoder") and module is not None:
                for parameter in module.parameters():
                    parameter.mul_(4.0)
    denoiser.eval()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
