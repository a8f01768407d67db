"""Pipelines that make sound."""

from typing import Any

import diffusers
import torch
import transformers

from . import parts, tokenizers

SAMPLING_RATE = 8000


def stable_audio(seed: int = 0) -> Any:
    """StableAudioPipeline: stereo of up to 0.256 s at 8 kHz, and its length as an input."""
    torch.manual_seed(seed)
    latent_channels = 8
    pipeline = diffusers.StableAudioPipeline(
        vae=diffusers.AutoencoderOobleck(
            encoder_hidden_size=8,
            downsampling_ratios=[4, 8],
            channel_multiples=[1, 2],
            decoder_channels=8,
            decoder_input_channels=latent_channels,
            audio_channels=2,
            sampling_rate=SAMPLING_RATE,
        ).eval(),
        text_encoder=parts.t5(),
        projection_model=diffusers.StableAudioProjectionModel(
            text_encoder_dim=parts.WIDTH, conditioning_dim=parts.WIDTH, min_value=0, max_value=32
        ).eval(),
        tokenizer=tokenizers.t5(max_length=64),
        transformer=diffusers.StableAudioDiTModel(
            sample_size=64,
            in_channels=latent_channels,
            out_channels=latent_channels,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            num_key_value_attention_heads=2,
            cross_attention_dim=parts.WIDTH,
            cross_attention_input_dim=parts.WIDTH,
            time_proj_dim=16,
            global_states_input_dim=2 * parts.WIDTH,
        ),
        scheduler=diffusers.EDMDPMSolverMultistepScheduler(
            prediction_type="v_prediction", sigma_data=1.0, sigma_schedule="exponential"
        ),
    )
    return parts.amplify(pipeline, pipeline.transformer)


def audioldm2(seed: int = 0) -> Any:
    """AudioLDM2Pipeline: CLAP, T5 and GPT-2 in a row, a mel spectrogram and a vocoder; mono at 8 kHz."""
    torch.manual_seed(seed)
    pipeline = diffusers.AudioLDM2Pipeline(
        vae=diffusers.AutoencoderKL(
            in_channels=1,
            out_channels=1,
            block_out_channels=(16, 16),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            layers_per_block=1,
            latent_channels=4,
            norm_num_groups=8,
        ).eval(),
        text_encoder=_clap(),
        text_encoder_2=parts.t5(),
        projection_model=diffusers.AudioLDM2ProjectionModel(
            text_encoder_dim=16, text_encoder_1_dim=parts.WIDTH, langauge_model_dim=16
        ).eval(),
        language_model=_gpt2(),
        tokenizer=tokenizers.roberta(),
        tokenizer_2=tokenizers.t5(),
        feature_extractor=transformers.ClapFeatureExtractor(feature_size=8, hop_length=64, sampling_rate=SAMPLING_RATE),
        unet=diffusers.AudioLDM2UNet2DConditionModel(
            sample_size=16,
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=((None, 16, parts.WIDTH),) * 2,
            attention_head_dim=4,
            norm_num_groups=8,
        ),
        scheduler=diffusers.DDIMScheduler(
            beta_start=0.0015, beta_end=0.0195, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
        ),
        vocoder=_vocoder(),
    )
    return parts.amplify(pipeline, pipeline.unet)


def _clap() -> Any:
    text = transformers.ClapTextConfig(
        vocab_size=parts.VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=parts.TOKENS + 2,
        projection_dim=16,
    )
    audio = transformers.ClapAudioConfig(
        spec_size=16,
        window_size=2,
        num_mel_bins=8,
        patch_size=2,
        patch_stride=2,
        patch_embeds_hidden_size=16,
        hidden_size=32,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        num_hidden_layers=2,
        projection_dim=16,
    )
    config = transformers.ClapConfig(text_config=text.to_dict(), audio_config=audio.to_dict(), projection_dim=16)
    return transformers.ClapModel(config).eval()


def _gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=parts.VOCABULARY, n_positions=1024, n_embd=16, n_inner=32, n_layer=1, n_head=2
    )
    config.max_new_tokens = 4
    return transformers.GPT2LMHeadModel(config).eval()


def _vocoder() -> Any:
    config = transformers.SpeechT5HifiGanConfig(
        model_in_dim=8,
        sampling_rate=SAMPLING_RATE,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        normalize_before=False,
    )
    vocoder = transformers.SpeechT5HifiGan(config).eval()
    with torch.no_grad():
        for parameter in vocoder.parameters():
            parameter.mul_(20.0)  # a fresh one is next to silent
    return vocoder
