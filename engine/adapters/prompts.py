"""How much of a prompt a pipeline reads."""

from typing import Any

SUFFIXES = ("", "_2", "_3")
#: tokenizers without a bound of their own say a number beyond any memory
NO_BOUND = 1_000_000


class PromptReader:
    """The tokenizer of a pipeline that reads furthest: what it drops, no text encoder has seen."""

    def __init__(self, pipeline: Any, max_sequence_length: int | None) -> None:
        components = pipeline.components
        readers = [
            (components.get(f"tokenizer{suffix}"), components.get(f"text_encoder{suffix}")) for suffix in SUFFIXES
        ]
        bounds = [
            (_bound(tokenizer, encoder, max_sequence_length), tokenizer)
            for tokenizer, encoder in readers
            if tokenizer is not None and encoder is not None
        ]
        nothing: tuple[int, Any] = (NO_BOUND, None)
        self._bound, self._tokenizer = max(bounds, key=lambda bound: bound[0], default=nothing)

    def truncated_at(self, prompt: str) -> int | None:
        """The number of tokens read, when there are more; special tokens are not counted."""
        if self._tokenizer is None or self._bound >= NO_BOUND or len(prompt.encode()) < self._bound // 2:
            return None
        num_tokens = len(self._tokenizer(prompt, truncation=False, verbose=False).input_ids)
        if num_tokens <= self._bound:
            return None
        return self._bound - int(self._tokenizer.num_special_tokens_to_add())


def _bound(tokenizer: Any, encoder: Any, max_sequence_length: int | None) -> int:
    """CLIP reads what its tokenizer says, 77 as a rule; T5 and Qwen what the call says, where it says."""
    is_clip = "CLIP" in type(encoder).__name__
    bound = tokenizer.model_max_length if is_clip or max_sequence_length is None else max_sequence_length
    return min(int(bound), NO_BOUND)
