"""Tokenizers that need no download: the bundled model's, and small ones of the kinds that the families expect."""

import json
import string
from typing import Any

import tokenizers
import transformers

from ..adapters.loading import MODELS
from .parts import TOKENS, VOCABULARY

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: what Qwen-Image wraps around a prompt, whose first 34 tokens it then drops; and words of the tests
TRAINING_TEXT = (
    "system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of "
    "the objects and background: user\n assistant\n a red house two boats at night a small blue star above a very "
    "large green moon"
)


def bundled() -> Any:
    """CLIP's, of the bundled model: 1000 pieces, lower case."""
    folder = str(MODELS / "tiny" / "tokenizer")
    return transformers.CLIPTokenizer.from_pretrained(folder)  # nosec B615 # a folder of this package, no hub


def t5(max_length: int = 512) -> Any:
    """One piece a character of ASCII; all others are unknown to it."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", *string.ascii_letters, *string.digits, *string.punctuation]
    vocabulary = [(piece, 0.0 if piece.startswith("<") and len(piece) > 1 else -2.0) for piece in pieces]
    return transformers.T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=max_length)


def qwen() -> Any:
    """Byte-level BPE with the words of the usual prompts as single pieces, and a chat template."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY - 8,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    trained.train_from_iterator([TRAINING_TEXT] * 2, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    made = transformers.Qwen2Tokenizer(vocab=model["vocab"], merges=merges, model_max_length=1024)
    made.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    made.chat_template = CHAT_TEMPLATE
    return made


def roberta() -> Any:
    """As CLAP's: byte-level, without merges."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=[], model_max_length=TOKENS)
