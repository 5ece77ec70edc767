"""Filling in the middle: how models that can are told what stands before and after the text they are to write."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

# Before the text that precedes, before the text that follows, and before the answer; one row a family of models.
FAMILIES = (
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
)


@dataclass(frozen=True)
class FillIn:
    """The token ids that mark the parts of such a prompt."""

    prefix: int
    suffix: int
    middle: int

    def prompt(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        return [self.prefix, *before, self.suffix, *after, self.middle]


def fill_in_of(tokenizer: Tokenizer) -> FillIn | None:
    """None for a vocabulary that has no such tokens."""
    added = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}
    for names in FAMILIES:
        if all(name in added for name in names):
            return FillIn(*(added[name] for name in names))
    return None
