"""What several of the random pipelines are made of."""

from typing import Any

import diffusers
import torch
import transformers

TOKENS = 32
WIDTH = 32
VOCABULARY = 1000


def clip(kind: Any) -> Any:
    """A text encoder of class `kind` for the bundled tokenizer."""
    config = transformers.CLIPTextConfig(
        vocab_size=VOCABULARY,
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


def t5(width: int = WIDTH) -> Any:
    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=width, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
    return transformers.T5EncoderModel(config).eval()


def vae(latent_channels: int, levels: int = 2) -> Any:
    """Halves a picture once for each level but the first."""
    return diffusers.AutoencoderKL(
        block_out_channels=(16,) * levels,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=8,
        sample_size=32,
        shift_factor=0.0,
    ).eval()


def amplify(pipeline: Any, denoiser: Any, gain: float = 4.0) -> Any:
    """Fresh weights hardly listen to the text; make the text louder so that a mixed-up row shows."""
    with torch.no_grad():
        for name, module in pipeline.components.items():
            if name.startswith("text_encoder") and module is not None:
                for parameter in module.parameters():
                    parameter.mul_(gain)
    denoiser.eval()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
