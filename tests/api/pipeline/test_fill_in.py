"""Filling in the middle, with the tokens of each family of models."""

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import TokenizersBackend

from api.pipeline.fill_in import FAMILIES, FillIn, fill_in_of
from api.pipeline.native_pool import NativePool
from api.pipeline.tokenizer import ModelTokenizer

WORDS = ["<unk>", "a", "b", "c"]


def tokenizer(*control_tokens: str) -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken(token) for token in control_tokens])
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokens_of_a_family_are_found(family: tuple[str, str, str]) -> None:
    assert fill_in_of(tokenizer("<s>", *family)) == FillIn(5, 6, 7)


def test_a_vocabulary_without_all_three_cannot_fill_in() -> None:
    assert fill_in_of(tokenizer("<s>", "<fim_prefix>", "<fim_suffix>")) is None
    assert fill_in_of(tokenizer()) is None


def test_the_answer_stands_between_prompt_and_suffix() -> None:
    backend = TokenizersBackend(tokenizer_object=tokenizer(*FAMILIES[0]))
    model = ModelTokenizer(backend, NativePool(1))
    assert model.can_fill_in
    assert model.encode_around(["a b", "b"], "c") == [[4, 1, 2, 5, 3, 6], [4, 2, 5, 3, 6]]
    assert model.encode_around([(1, 1), (2,)], "c c") == [[4, 1, 1, 5, 3, 3, 6], [4, 2, 5, 3, 3, 6]]
