"""The model's words: a byte-level CLIP tokenizer learned from toy-world captions, and the synonyms it is taught."""

import json
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import CLIPTokenizer

from training.toy_world import draw, reword

MAX_TOKENS = 32
SYNONYM_SHARE = 0.18
SYNONYMS = {
    "large": ["big", "huge"],
    "small": ["little", "tiny"],
    "above": ["on top of"],
    "below": ["beneath", "underneath"],
    "moon": ["crescent"],
    "gray": ["grey"],
    "night-blue": ["dark blue", "navy"],
    "boat": ["sailboat", "ship"],
    "purple": ["violet"],
    "beside": ["near"],
    "and": ["with"],
    "balloon": ["hot air balloon"],
    "smiling": ["happy"],
    "in the center": ["in the middle"],
    "sea": ["ocean", "lake"],
    "car": ["automobile"],
    "two": ["2"],
    "three": ["3"],
    "four": ["4"],
    "five": ["5"],
    "cream": ["beige"],
}
# Words the captions lack but people type; each gets tokens of its own instead of single letters.
EXTRA_WORDS = (
    "dog cat bird person robot sky forest river road castle photo painting style cute beautiful with "
    "without of the in by for is are sun cloud rain snow winter summer rocket space planet rainbow gold "
    "silver cyan magenta ring cross rectangle oval line seven six ten one no"
)


def with_synonyms(rng: random.Random, caption: str) -> str:
    """The caption with each known word replaced by a synonym `SYNONYM_SHARE` of the time."""
    for word, others in SYNONYMS.items():
        if word not in caption or rng.random() >= SYNONYM_SHARE:
            continue
        if " " in word:
            caption = caption.replace(word, rng.choice(others))
        else:
            caption = " ".join(rng.choice(others) if part == word else part for part in caption.split(" "))
    return caption


def typed_caption(rng: random.Random, caption: str) -> str:
    return with_synonyms(rng, reword(rng, caption))


def build(folder: str) -> CLIPTokenizer:
    """Learn the merges and save the tokenizer; any text tokenizes, since every byte is in the vocabulary."""
    rng = random.Random(5)
    corpus = [typed_caption(rng, draw(rng).caption).lower() for _ in range(6000)] + EXTRA_WORDS.split() * 8
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.pre_tokenizer = CLIPTokenizer().backend_tokenizer.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=1400,
        min_frequency=4,
        initial_alphabet=alphabet,
        end_of_word_suffix="</w>",
        special_tokens=[],
        show_progress=False,
    )
    learner.train_from_iterator(corpus, trainer)
    merges = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    pieces = [*alphabet, *(byte + "</w>" for byte in alphabet), *("".join(pair) for pair in merges)]
    vocabulary: dict[str, int] = {}
    for piece in [*pieces, "<|startoftext|>", "<|endoftext|>"]:
        vocabulary.setdefault(piece, len(vocabulary))
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_TOKENS)
    tokenizer.save_pretrained(folder)
    return tokenizer


if __name__ == "__main__":
    print(len(build(sys.argv[1])), "entries")
