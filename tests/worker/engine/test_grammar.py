"""Grammars: which tokens may come next, and what is known from the tokens alone."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from llguidance import LLMatcher
from transformers import AutoTokenizer

from worker.engine import grammar as grammar_module
from worker.engine.draw import MASK_BITS
from worker.engine.grammar import AnswerGrammar, GrammarFailed, GrammarRoom, MakeGrammar, grammar_maker

VOCAB_SIZE = 49152 + 40  # models pad their vocabularies
END = 2
DEADLINE_S = 30.0
ABC = LLMatcher.grammar_from_regex("[ab]{2}c?")


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(smollm2_folder)


@pytest.fixture(scope="module")
def make(tokenizer: Any) -> MakeGrammar:
    return grammar_maker(tokenizer, VOCAB_SIZE, frozenset({END}))


def push(grammar: AnswerGrammar, token_ids: list[int]) -> AnswerGrammar:
    for token_id in token_ids:
        grammar.push(token_id)
    return grammar


def allowed(mask: torch.Tensor) -> set[int]:
    words = mask.tolist()
    return {MASK_BITS * i + bit for i, word in enumerate(words) for bit in range(MASK_BITS) if word >> bit & 1}


def may_follow(tokenizer: Any, text: str) -> set[int]:
    """By trying every token of the vocabulary; the end token where the text matches as it stands."""
    beginnings = re.compile("[ab]{1,2}|[ab]{2}c")
    words = {
        token_id: word for word, token_id in tokenizer.get_vocab().items() if word not in tokenizer.all_special_tokens
    }
    fitting = {token_id for token_id, word in words.items() if beginnings.fullmatch(text + word)}
    return fitting | ({END} if len(text) > 1 else set())


def test_each_mask_has_the_tokens_that_may_come_next(make: MakeGrammar, tokenizer: Any) -> None:
    texts = ["", "b", "ba", "bac"]
    grammars = [push(make(ABC), [tokenizer.convert_tokens_to_ids(letter) for letter in text]) for text in texts]
    masks = GrammarRoom(make, VOCAB_SIZE).start_masks(grammars).result()
    assert [allowed(masks[grammar]) for grammar in grammars] == [may_follow(tokenizer, text) for text in texts]


def test_masks_do_not_wait_for_a_grammar_that_is_being_made(make: MakeGrammar) -> None:
    may_go_on = threading.Event()

    def make_slowly(grammar: str) -> AnswerGrammar:
        assert may_go_on.wait(DEADLINE_S)
        return make(grammar)

    room = GrammarRoom(make_slowly, VOCAB_SIZE)
    room.order("job", ABC, 2)
    (mask,) = room.start_masks([make(ABC)]).result(DEADLINE_S).values()
    assert mask.shape == (-(-VOCAB_SIZE // MASK_BITS),)
    assert room.made(is_idle=True) == {}
    may_go_on.set()
    while not (made := room.made(is_idle=True)):
        pass
    assert len(made["job"].result()) == 2


def test_when_masks_take_too_long_then_they_take_turns(make: MakeGrammar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "MASKS_S", -1.0)
    room = GrammarRoom(make, VOCAB_SIZE)
    grammars = [make(ABC) for _ in range(3)]
    assert [list(room.start_masks(grammars).result()) for _ in range(4)] == [[grammars[i]] for i in (0, 1, 2, 0)]


def test_a_grammar_is_complete_when_nothing_may_follow(make: MakeGrammar, tokenizer: Any) -> None:
    grammar = make(ABC)
    states = []
    for token_id in [*tokenizer.encode("a"), *tokenizer.encode("b"), *tokenizer.encode("c")]:
        grammar.push(token_id)
        states.append(grammar.is_complete)
    assert states == [False, False, True]
    grammar.push(END)
    assert grammar.is_complete


def test_a_token_that_does_not_fit_is_told(make: MakeGrammar, tokenizer: Any) -> None:
    with pytest.raises(GrammarFailed, match=r"doesn't satisfy the grammar"):
        push(make(ABC), tokenizer.encode("zz"))


def test_what_is_no_grammar_is_told_in_one_line(make: MakeGrammar) -> None:
    with pytest.raises(GrammarFailed) as told:
        make("start: nowhere")
    assert "\n" not in str(told.value)
    assert "nowhere" in str(told.value)


def test_given_no_usable_tokenizer_then_it_says_so_when_the_first_grammar_comes() -> None:
    make = grammar_maker(object(), VOCAB_SIZE, frozenset({END}))
    with pytest.raises(GrammarFailed, match="tokenizer cannot follow grammars"):
        make(ABC)
