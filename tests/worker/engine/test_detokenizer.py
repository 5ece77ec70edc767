"""Detokenizers: the joined pieces equal the tokenizer's own decode, and no piece ends inside a character."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from worker.engine.detokenizer import ByteDetokenizer, WindowDetokenizer, detokenizer_factory

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
WORDS = ["▁", "▁▁", "▁the", "▁cat", "s", "ing", "▁日本", "語", "!", "▁,", "é", "\n", "##ed", "a</w>", "Ġx", REPLACEMENT]


def pieces(tokenizer: Any, token_ids: Sequence[int]) -> list[str]:
    detokenizer = detokenizer_factory(tokenizer)()
    return [detokenizer.feed(token_id) for token_id in token_ids] + [detokenizer.flush()]


def plain(tokenizer: Any, token_ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def make_tokenizer(decoder: Any) -> Any:
    """Byte tokens, words, a special token and an added one that is not special, under this decoder."""
    vocab = {token: i for i, token in enumerate([*(f"<0x{byte:02X}>" for byte in range(256)), *WORDS])}
    backend = Tokenizer(models.BPE(vocab, [], byte_fallback=True))
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens([AddedToken("<|end|>", special=True)])
    backend.add_tokens([AddedToken("<tool call>", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


DECODERS: dict[str, Callable[[], Any]] = {
    "llama 2": lambda: decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "gemma": lambda: decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    "metaspace": decoders.Metaspace,
    "wordpiece": decoders.WordPiece,
    "suffix": lambda: decoders.BPEDecoder(suffix="</w>"),
    "none": lambda: None,
    "bytes": decoders.ByteLevel,
}


@pytest.fixture(scope="module", params=list(DECODERS))
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return make_tokenizer(DECODERS[request.param]())


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(smollm2_folder)


num_made_up = 256 + len(WORDS) + 2
made_up_ids = st.lists(st.one_of(st.integers(0, 255), st.integers(256, num_made_up - 1), st.just(10**6)), max_size=25)


@settings(max_examples=150, deadline=None)
@given(token_ids=made_up_ids)
def test_joined_pieces_equal_the_plain_decode_for_any_tokens(tokenizer: Any, token_ids: list[int]) -> None:
    assert "".join(pieces(tokenizer, token_ids)) == plain(tokenizer, token_ids)


@pytest.mark.parametrize("seed", range(40))
def test_random_tokens_of_a_byte_level_vocabulary_with_invalid_utf8_equal_the_plain_decode(
    smollm2: Any, seed: int
) -> None:
    dice = random.Random(seed)
    upper = dice.choice([300, len(smollm2)])  # the first 300 are single bytes and special tokens
    token_ids = [dice.randrange(upper) for _ in range(120)]
    assert "".join(pieces(smollm2, token_ids)) == plain(smollm2, token_ids)


TEXTS = ["Grüße 👩‍👩‍👧‍👦 🏳️‍🌈!", "日本語のテキスト", "  two  spaces\n\n\tand tabs ", "नमस्ते", "a\u0000b", "e\u0301"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_piece_never_ends_inside_a_character(smollm2: Any, text: str) -> None:
    token_ids = smollm2.encode(text, add_special_tokens=False)
    assert len(token_ids) > 2
    parts = pieces(smollm2, token_ids)
    assert "".join(parts) == text
    assert not any(REPLACEMENT in part for part in parts)


def test_byte_tokens_are_held_back_until_their_run_ends() -> None:
    tokenizer = make_tokenizer(DECODERS["llama 2"]())
    emoji = list("🙂".encode())
    assert pieces(tokenizer, [*emoji, 264]) == ["", "", "", "", "🙂!", ""]
    assert pieces(tokenizer, emoji) == ["", "", "", "", "🙂"]
    assert pieces(tokenizer, [*emoji, 0xFF, 264]) == ["", "", "", "", "", REPLACEMENT * 5 + "!", ""]


def test_special_tokens_have_no_text_and_leave_spaces_alone() -> None:
    tokenizer = make_tokenizer(DECODERS["llama 2"]())
    special = tokenizer.convert_tokens_to_ids("<|end|>")
    the, cat = (tokenizer.convert_tokens_to_ids(token) for token in ("▁the", "▁cat"))
    assert pieces(tokenizer, [special, the, special, special, cat]) == ["", "the", "", "", " cat", ""]


def test_byte_level_vocabularies_get_the_byte_detokenizer_and_others_the_window(smollm2: Any) -> None:
    assert isinstance(detokenizer_factory(smollm2)(), ByteDetokenizer)
    assert isinstance(detokenizer_factory(make_tokenizer(DECODERS["gemma"]()))(), WindowDetokenizer)


def test_the_work_for_a_token_does_not_grow_with_the_answer() -> None:
    lengths = set()

    def decode(token_ids: list[int]) -> str:
        lengths.add(len(token_ids))
        return "x" * len(token_ids)

    window = WindowDetokenizer(decode, lambda _: True, frozenset(), lambda _: b"x")
    assert "".join(window.feed(1) for _ in range(1000)) == "x" * 1000
    assert max(lengths) == 2


def test_a_byte_level_token_alone_is_its_bytes_and_a_special_one_its_name(smollm2: Any) -> None:
    detokenizer = detokenizer_factory(smollm2)()
    token_ids = smollm2.encode(" café 日本🙂", add_special_tokens=False)
    assert b"".join(map(detokenizer.token_bytes, token_ids)) == " café 日本🙂".encode()
    assert detokenizer.token_bytes(2) == b"<|im_end|>"
    assert detokenizer.token_bytes(10**6) == b""


def test_other_tokens_alone_are_as_inside_a_text() -> None:
    detokenizer = detokenizer_factory(make_tokenizer(DECODERS["llama 2"]()))()
    texts = [detokenizer.token_bytes(token_id) for token_id in (0xE4, 258, 260, 264, num_made_up - 2, 10**6)]
    assert texts == [b"\xe4", b" the", b"s", b"!", b"<|end|>", b""]
    wordpiece = detokenizer_factory(make_tokenizer(DECODERS["wordpiece"]()))()
    assert [wordpiece.token_bytes(token_id) for token_id in (260, 256 + WORDS.index("##ed"))] == [b" s", b"ed"]
