"""What a model's call signature does not say: which arguments are clocks, which are tables, which texts may be padded.

Defaults hold for every family; the exceptions are few and stand here by class name. Found by reading the forwards of
diffusers 0.35 to 0.42 and by comparing merged with separate calls.
"""

from dataclasses import dataclass

import transformers

#: One number a call, whatever its shape: 0-dim or `[1]`. Merged, it becomes one number a row.
CLOCKS = frozenset({"timestep", "timesteps", "t"})

#: Tables without a row dimension, even where their first side happens to equal the number of rows.
TABLES = frozenset({"img_ids", "txt_ids", "image_rotary_emb", "freqs_cis", "rotary_emb", "latent_image_ids", "ofs"})

#: What a pipeline makes once and hands over at every step as it is: what is merged of it is kept for the next step.
REPEATED = frozenset(
    {
        "encoder_hidden_states",
        "encoder_hidden_states_1",
        "encoder_hidden_states_image",
        "encoder_attention_mask",
        "encoder_attention_mask_1",
        "encoder_hidden_states_mask",
        "pooled_projections",
        "text_embeds",
        "time_ids",
        "guidance",
    }
)

#: Parts of an output that no pipeline reads and that cannot be split: a language model's cache of keys and values.
UNREAD = (transformers.Cache,)


@dataclass(frozen=True, slots=True)
class TextPadding:
    """A text `[rows, tokens, width]` of varying length that may be padded with zeros, as its
    mask `[rows, tokens]` then says.

    Where the call brings no mask, one of all true is made. `lengths` names a list of token counts that goes with it.
    """

    text: str
    mask: str
    lengths: str | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.text, self.mask} if self.lengths is None else {self.text, self.mask, self.lengths})


PADDED_TEXTS: dict[str, tuple[TextPadding, ...]] = {
    "QwenImageTransformer2DModel": (
        TextPadding("encoder_hidden_states", "encoder_hidden_states_mask", lengths="txt_seq_lens"),
    ),
    "AudioLDM2UNet2DConditionModel": (
        TextPadding("encoder_hidden_states", "encoder_attention_mask"),
        TextPadding("encoder_hidden_states_1", "encoder_attention_mask_1"),
    ),
}

#: Takes a generator and does not draw from it when it decodes.
GENERATOR_UNUSED = frozenset({"AutoencoderKL", "AutoencoderTiny", "AutoencoderKLWan", "AutoencoderKLQwenImage"})
