"""Log-probabilities over the wire: OpenAI's two shapes, the same in streams and whole answers, joined to the text."""

import math
from typing import Any

import pytest
from openai import OpenAI

from tests.api.http.client import CHAT, COMPLETIONS, Json, answered, chat_body, completion_body, streamed, text_of
from tests.api.http.reciter import FILLER, PIECES, Recital
from tests.stack import WebServer


def streamed_content(server: WebServer, body: Json) -> list[Json]:
    choices = [chunk["choices"][0] for chunk in streamed(server, CHAT, body).chunks]
    return [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["content"]]


def streamed_lists(server: WebServer, body: Json, index: int = 0) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for chunk in streamed(server, COMPLETIONS, body).chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index and choice["logprobs"]:
                for name, values in choice["logprobs"].items():
                    lists[name] += values
    return lists


@pytest.mark.parametrize("num_top", [None, 0, 1, 20])
def test_chat_tells_each_token_and_so_many_alternatives(tiny: WebServer, num_top: int | None) -> None:
    body = chat_body("Tell me.", 10, model="tiny", logprobs=True, top_logprobs=num_top)
    (choice,) = answered(tiny, CHAT, body)["choices"]
    told = choice["logprobs"]["content"]
    assert len(told) == 10
    assert [len(token["top_logprobs"]) for token in told] == [num_top or 0] * 10
    for token in told:
        assert token["logprob"] <= 0
        likeliest = [each["logprob"] for each in token["top_logprobs"]]
        assert likeliest == sorted(likeliest, reverse=True)
        if likeliest:
            assert token["logprob"] == likeliest[0]  # greedy
    assert streamed_content(tiny, body) == told


def test_the_bytes_of_split_characters_join_to_the_text(server: WebServer, recital: Recital) -> None:
    (choice,) = answered(server, COMPLETIONS, completion_body(recital.prompt("emoji"), 100, logprobs=0))["choices"]
    assert choice["text"] == PIECES["emoji"]
    told = choice["logprobs"]
    assert b"".join(token_bytes(token) for token in told["tokens"]) == str(PIECES["emoji"]).encode()
    assert any(token.startswith("bytes:\\x") for token in told["tokens"])
    assert_offsets(choice["text"], told)


def token_bytes(token: str) -> bytes:
    if not token.startswith("bytes:"):
        return token.encode()
    return bytes(int(digits, 16) for digits in token.removeprefix("bytes:").split("\\x")[1:])


def assert_offsets(text: str, told: dict[str, list[Any]]) -> None:
    """Each whole token stands where it is said to; the parts of a character at that character."""
    position = 0
    for token, offset in zip(told["tokens"], told["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert text[offset:].startswith(token)
        assert 0 <= offset - position <= 1
        position = offset if token.startswith("bytes:") else offset + len(token)


@pytest.mark.parametrize("piece", list(PIECES))
def test_streams_and_whole_answers_tell_the_same_of_every_text(server: WebServer, recital: Recital, piece: str) -> None:
    body = completion_body(recital.prompt(piece), 100, logprobs=2)
    (choice,) = answered(server, COMPLETIONS, body)["choices"]
    assert streamed_lists(server, body) == choice["logprobs"]
    assert len(choice["logprobs"]["tokens"]) == recital.num_tokens(piece)
    assert all(len(top) in (2, 3) for top in choice["logprobs"]["top_logprobs"])


def test_control_tokens_are_told_of_but_have_no_part_in_the_text(server: WebServer, recital: Recital) -> None:
    (choice,) = answered(server, COMPLETIONS, completion_body(recital.prompt("special"), 100, logprobs=0))["choices"]
    tokens = dict(zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True))
    assert {"<|im_start|>", "<repo_name>"} < set(tokens)
    assert all(control not in choice["text"] for control in tokens if control.startswith("<"))


@pytest.mark.parametrize("stop", [" END", "END.", ";", "three"])
def test_what_a_stop_string_cuts_off_is_not_told(server: WebServer, recital: Recital, stop: str) -> None:
    body = completion_body(recital.prompt("stops"), 100, logprobs=0, stop=stop)
    (choice,) = answered(server, COMPLETIONS, body)["choices"]
    assert stop not in choice["text"]
    assert "".join(choice["logprobs"]["tokens"]).startswith(choice["text"])
    assert choice["logprobs"]["text_offset"][-1] < len(choice["text"])
    assert streamed_lists(server, body) == choice["logprobs"]


def test_a_kept_stop_string_is_told_with_its_tokens(server: WebServer, recital: Recital) -> None:
    body = completion_body(recital.prompt("stops"), 100, logprobs=0, stop=" five", include_stop_str_in_output=True)
    (choice,) = answered(server, COMPLETIONS, body)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (PIECES["stops"], "stop")
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


def test_a_token_that_cannot_come_has_a_finite_number(server: WebServer) -> None:
    """The end token is ruled out by min_tokens, yet stays among the alternatives of the model itself."""
    body = chat_body(num_tokens=3, logprobs=True, top_logprobs=20, min_tokens=3, logit_bias={"2": -100})
    for token in answered(server, CHAT, body)["choices"][0]["logprobs"]["content"]:
        numbers = [token["logprob"], *(each["logprob"] for each in token["top_logprobs"])]
        assert all(math.isfinite(number) and number <= 0 for number in numbers)


@pytest.mark.parametrize("fields", [{"guided_choice": ["🐦 and"]}, {"top_k": 1}, {"logit_bias": {"2": -100, "5": 100}}])
def test_what_a_grammar_a_filter_or_a_bias_rules_out_has_a_finite_number_too(
    server: WebServer, fields: dict[str, Any]
) -> None:
    """Of the chosen token as well: here it is one that the model itself would never say."""
    body = completion_body([FILLER] * 3, 4, logprobs=5, **fields)
    (choice,) = answered(server, COMPLETIONS, body)["choices"]
    told = choice["logprobs"]
    numbers = [*told["token_logprobs"], *(number for top in told["top_logprobs"] for number in top.values())]
    assert all(math.isfinite(number) and number <= 0 for number in numbers)
    assert streamed_lists(server, body) == told
    assert [len(top) in (5, 6) for top in told["top_logprobs"]] == [True] * len(told["tokens"])


def test_a_chat_tells_the_bytes_of_characters_in_pieces(server: WebServer) -> None:
    """Of each token its own; its text is where the character ends."""
    body = chat_body(num_tokens=9, logprobs=True, guided_choice=["水🐦é"])
    (choice,) = answered(server, CHAT, body)["choices"]
    told = choice["logprobs"]["content"]
    assert choice["message"]["content"] == "水🐦é"
    assert bytes(byte for token in told for byte in token["bytes"] or ()) == "水🐦é".encode()
    assert len(told) > 3
    assert streamed_content(server, body) == told


def test_without_asking_there_are_none(server: WebServer) -> None:
    for path, body in ((CHAT, chat_body(logprobs=False)), (COMPLETIONS, completion_body("x", logprobs=None))):
        assert answered(server, path, body)["choices"][0]["logprobs"] is None
        assert all(chunk["choices"][0]["logprobs"] is None for chunk in streamed(server, path, body).chunks)


def test_the_sdk_gathers_a_streams_logprobs(tiny: WebServer) -> None:
    client = OpenAI(base_url=tiny.url + "/v1", api_key="x", max_retries=0)
    fields: dict[str, Any] = {
        "model": "tiny", "messages": [{"role": "user", "content": "Tell me."}], "max_tokens": 8, "temperature": 0,
        "logprobs": True, "top_logprobs": 3, "n": 2,
    }  # fmt: skip
    whole = client.chat.completions.create(**fields)
    with client.chat.completions.stream(**fields) as stream:
        stream.until_done()
        gathered = stream.current_completion_snapshot  # the final one may not be cut off by its length
    for one, other in zip(whole.choices, gathered.choices, strict=True):
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs.content == other.logprobs.content
        assert len(one.logprobs.content or ()) == 8


class TestAnEcho:
    def test_begins_with_the_prompt_whose_first_token_is_told_nothing_of(
        self, server: WebServer, recital: Recital
    ) -> None:
        prompt = "The 🐦 river"
        body = completion_body(prompt, 3, echo=True, logprobs=1)
        (choice,) = answered(server, COMPLETIONS, body)["choices"]
        told = choice["logprobs"]
        num = len(recital.tokenizer.encode(prompt).ids)
        assert choice["text"] == prompt + recital.text(num, 3)
        assert (told["token_logprobs"][0], told["top_logprobs"][0]) == (None, None)
        assert [type(number) for number in told["token_logprobs"][1:]] == [float] * (num + 2)
        assert {name: len(values) for name, values in told.items()} == dict.fromkeys(told, num + 3)
        assert b"".join(map(token_bytes, told["tokens"])) == choice["text"].encode()
        assert_offsets(choice["text"], told)
        assert streamed_lists(server, body) == told

    def test_alone_needs_no_answer(self, server: WebServer) -> None:
        for logprobs in (None, 2):
            body = completion_body("The river", 0, echo=True, logprobs=logprobs)
            whole, stream = answered(server, COMPLETIONS, body), streamed(server, COMPLETIONS, body)
            assert (text_of(whole), whole["choices"][0]["finish_reason"]) == ("The river", "length")
            assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (2, 0)
            assert (stream.text(), stream.finish()) == ("The river", "length")
            assert streamed_lists(server, body)["tokens"] == (["The", " river"] if logprobs else [])

    def test_of_a_prompt_of_one_token(self, server: WebServer) -> None:
        (choice,) = answered(server, COMPLETIONS, completion_body([FILLER], 0, echo=True, logprobs=5))["choices"]
        assert choice["logprobs"]["token_logprobs"] == [None]
        assert choice["logprobs"]["tokens"] == [choice["text"]]

    def test_of_token_ids_is_their_text_with_control_tokens(self, server: WebServer, recital: Recital) -> None:
        ids = recital.tokenizer.encode("<|im_start|>user 🐦", add_special_tokens=False).ids
        for body in (completion_body(ids, 1, echo=True), completion_body(ids, 1, echo=True, logprobs=0)):
            (choice,) = answered(server, COMPLETIONS, body)["choices"]
            assert choice["text"] == "<|im_start|>user 🐦" + recital.text(len(ids), 1)
        assert_offsets(choice["text"], choice["logprobs"])
        assert choice["logprobs"]["tokens"][:2] == ["<|im_start|>", "user"]

    def test_stands_before_each_of_many_answers(self, server: WebServer, recital: Recital) -> None:
        prompts = ["The", "The river rises"]
        body = completion_body(prompts, 2, echo=True, logprobs=0, n=2)
        whole, stream = answered(server, COMPLETIONS, body), streamed(server, COMPLETIONS, body)
        expected = [prompt + recital.text(len(prompt.split()), 2) for prompt in prompts for _ in range(2)]
        assert [text_of(whole, i) for i in range(4)] == expected
        assert [stream.text(i) for i in range(4)] == expected
        for i, choice in enumerate(whole["choices"]):
            assert_offsets(choice["text"], choice["logprobs"])
            assert streamed_lists(server, body, i) == choice["logprobs"]

    def test_tells_of_a_prompt_what_the_model_thinks_of_it(self, server: WebServer, recital: Recital) -> None:
        """The answer to a prompt, sent again with it as a prompt, is as probable as it was; another one is not."""

        def told(prompt: list[int], num_tokens: int) -> list[float]:
            body = completion_body(prompt, num_tokens, logprobs=0, echo=True)
            (choice,) = answered(server, COMPLETIONS, body)["choices"]
            numbers: list[float] = choice["logprobs"]["token_logprobs"]
            return numbers[1:]

        prompt = [FILLER] * 3
        recited = recital.script[3:9]
        assert told(prompt + recited, 0) == pytest.approx(told(prompt, 6), abs=1e-4)
        assert min(told(prompt + recited, 0)[2:]) > -0.1
        assert max(told(prompt + [FILLER] * 6, 0)[2:]) < -10
