"""How much of a prompt a pipeline reads."""

from typing import Any

TOKENIZERS = ("tokenizer", "tokenizer_2", "tokenizer_3")
#: tokenizers without a bound of their own say a number beyond any memory
NO_BOUND = 1_000_000


class PromptReader:
    """The tokenizer of a pipeline that reads furthest: what it drops, no text encoder has seen."""

    def __init__(self, pipeline: Any, max_sequence_length: int | None) -> None:
        components = pipeline.components
        tokenizers = [components[name] for name in TOKENIZERS if components.get(name) is not None]
        bounds = {id(tokenizer): _bound(tokenizer, max_sequence_length) for tokenizer in tokenizers}
        self._tokenizer = max(tokenizers, key=lambda tokenizer: bounds[id(tokenizer)], default=None)
        self._bound = bounds[id(self._tokenizer)] if tokenizers else NO_BOUND

    def truncated_at(self, prompt: str) -> int | None:
        """The number of tokens read, when there are more; special tokens are not counted."""
        if self._tokenizer is None or self._bound >= NO_BOUND or len(prompt.encode()) < self._bound // 2:
            return None
        num_tokens = len(self._tokenizer(prompt, truncation=False, verbose=False).input_ids)
        if num_tokens <= self._bound:
            return None
        return self._bound - int(self._tokenizer.num_special_tokens_to_add())


def _bound(tokenizer: Any, max_sequence_length: int | None) -> int:
    """CLIP's 77 is fixed; the long readers (T5, Qwen) are cut by the call's `max_sequence_length`."""
    own = min(int(tokenizer.model_max_length), NO_BOUND)
    is_long_reader = "CLIP" not in type(tokenizer).__name__
    return min(own, max_sequence_length) if is_long_reader and max_sequence_length is not None else own
