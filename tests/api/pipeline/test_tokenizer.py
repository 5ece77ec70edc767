"""The tokenizer without torch: raw prompts, bounds, and what cannot be loaded."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from api.pipeline.messages import Message
from api.pipeline.native_pool import NativePool
from api.pipeline.served_model import ServedModel
from api.pipeline.tokenizer import ModelTokenizer, TokenizerNotUsableError, longest_token_bytes
from tests.api.pipeline.refusals import refusal
from tests.api.pipeline.tokenizers_of_many_kinds import llama2_like, phi3_like, unigram_like

ROLES = ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    "messages",
    [
        [("user", "Hello")],
        [("system", "Be brief."), ("user", "x  12 y")],
        [("system", "only a system message")],
        [("user", "one"), ("user", "two")],
        [("user", "one"), ("assistant", "the answer begins")],
        [("assistant", "first"), ("assistant", "second"), ("system", "late")],
        [("user", "call"), ("tool", "42")],
        [("user", "")],
        [("user", "nul \x00 and \U0001f469\u200d\U0001f680 and \u00e9 e\u0301 \r\n\t")],
    ],
)
def test_chats_are_encoded_as_transformers_does(
    model: ServedModel, reference: Any, messages: list[tuple[str, str]]
) -> None:
    ids = model.tokenizer.encode_chat([Message(role=role, content=text) for role, text in messages], 8192)
    chat = [{"role": role, "content": text} for role, text in messages]
    assert ids == reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)


def test_raw_prompts_parse_control_tokens(model: ServedModel) -> None:
    assert model.tokenizer.encode_prompts(["<|im_start|>user\nx  12<|im_end|>", "0", ""]) == [
        [1, 4093, 198, 104, 256, 33, 34, 2],
        [32],
        [],
    ]


def test_the_start_token_comes_once() -> None:
    tokenizer = ModelTokenizer(llama2_like(), NativePool(1))
    he = tokenizer.encode_prompts(["he"])[0]
    assert he[:1] == [1]
    assert [ids.count(1) for ids in tokenizer.encode_prompts(["<s>he", "he", "", "<s>"])] == [1, 1, 1, 1]


def test_a_start_token_that_only_the_user_writes_twice_stays(model: ServedModel) -> None:
    assert model.tokenizer.encode_prompts(["<|im_start|><|im_start|>x"]) == [[1, 1, 104]]


def test_chat_has_the_start_token_of_the_template_alone() -> None:
    tokenizer = ModelTokenizer(llama2_like(), NativePool(1))
    assert tokenizer.encode_chat([Message(role="user", content="he")], 100).count(1) == 1


def test_the_longest_token_bounds_how_much_text_can_fit(model: ServedModel) -> None:
    assert model.tokenizer.longest_token_bytes == 81
    assert [model.tokenizer.fewest_tokens(size) for size in (0, 1, 81, 82)] == [0, 1, 1, 2]


def test_where_unknown_text_of_any_length_is_one_token_nothing_is_bounded() -> None:
    assert longest_token_bytes(unigram_like().backend_tokenizer) is None
    assert ModelTokenizer(unigram_like(), NativePool(1)).fewest_tokens(10**9) == 0
    assert longest_token_bytes(llama2_like().backend_tokenizer) == 6
    assert longest_token_bytes(phi3_like().backend_tokenizer) == 13


def test_a_rendered_text_that_cannot_fit_is_refused_before_it_is_encoded(model: ServedModel) -> None:
    with refusal() as refused:
        model.tokenizer.encode_chat([Message(role="assistant", content="x" * 9_000)], 100)
    assert refused.facts == (400, "messages", "context_length_exceeded")
    assert "maximum context length is 100 tokens" in str(refused.error)
    assert "at least 113 tokens" in str(refused.error)


def test_a_template_that_refuses_is_a_bad_request_with_its_own_words() -> None:
    backend = phi3_like()
    backend.chat_template = "{{ raise_exception('Roles must alternate user/assistant') }}"
    with refusal() as refused:
        ModelTokenizer(backend, NativePool(1)).encode_chat([Message(role="user", content="x")], 100)
    assert refused.facts == (400, "messages", None)
    assert "Roles must alternate user/assistant" in str(refused.error)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[5].content }}",
        "{{ 1 / 0 }}",
        "{{ 'x' + 3 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.clear() }}",
    ],
)
def test_a_template_that_crashes_is_a_bad_request(template: str) -> None:
    backend = phi3_like()
    backend.chat_template = template
    with refusal() as refused:
        ModelTokenizer(backend, NativePool(1)).encode_chat([Message(role="user", content="x")], 100)
    assert refused.facts == (400, "messages", None)


def test_a_model_without_a_template_points_to_completions() -> None:
    backend = phi3_like()
    backend.chat_template = None
    tokenizer = ModelTokenizer(backend, NativePool(1))
    with refusal() as refused:
        tokenizer.encode_chat([Message(role="user", content="x")], 100)
    assert refused.facts == (400, "messages", None)
    assert "/v1/completions" in str(refused.error)
    assert tokenizer.encode_prompts(["he"]) == [[256]]


def test_truncation_and_padding_saved_with_a_tokenizer_are_off() -> None:
    backend = phi3_like()
    backend.backend_tokenizer.enable_truncation(2)
    backend.backend_tokenizer.enable_padding(length=50)
    assert [len(ids) for ids in ModelTokenizer(backend, NativePool(1)).encode_prompts(["abcdef", "a"])] == [6, 1]


def test_a_folder_without_a_usable_tokenizer_is_named(smollm2_folder: Path, tmp_path: Path) -> None:
    shutil.copy(smollm2_folder / "config.json", tmp_path)
    with pytest.raises(TokenizerNotUsableError, match=str(tmp_path)):
        ModelTokenizer.load(str(tmp_path), NativePool(1))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerNotUsableError, match=str(tmp_path)):
        ModelTokenizer.load(str(tmp_path), NativePool(1))
