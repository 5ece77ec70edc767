"""Counting and turning text into tokens and back, without any worker's help."""

from typing import Any

import pytest

from tests.api.http.client import CHAT, Json, answered, chat_body, error_of, post
from tests.api.http.reciter import CONTEXT, RECITER, Recital
from tests.stack import WebServer

USER = {"role": "user", "content": "Where? 🐦"}


def told(server: WebServer, path: str, **body: Any) -> Json:
    response = post(server, path, body)
    assert response.status_code == 200, response.text
    answer: Json = response.json()
    return answer


def test_a_prompt_is_told_as_its_tokens(server: WebServer, recital: Recital) -> None:
    text = "<|im_start|>user\nWhere? 🐦"
    encoded = recital.tokenizer.encode(text)
    expected = {"count": len(encoded.ids), "max_model_len": CONTEXT, "tokens": encoded.ids, "token_strs": None}
    assert told(server, "/tokenize", model=RECITER, prompt=text) == expected
    assert told(server, "/tokenize", prompt=text, add_special_tokens=False) == expected
    with_pieces = told(server, "/tokenize", model="gpt-4o", prompt=text, return_token_strs=True)
    assert with_pieces == expected | {"token_strs": encoded.tokens}


def test_a_conversation_is_told_as_the_tokens_of_its_chat(server: WebServer) -> None:
    asked = answered(server, CHAT, chat_body(messages=[USER]))["usage"]["prompt_tokens"]
    tokens = told(server, "/tokenize", model=RECITER, messages=[USER])
    counted = told(server, CHAT + "/input_tokens", model=RECITER, messages=[USER], stream=True, max_tokens=5)
    assert tokens["count"] == len(tokens["tokens"]) == asked
    assert counted == {"object": "response.input_tokens", "input_tokens": asked}
    fewer = told(server, "/tokenize", messages=[USER], add_generation_prompt=False)["tokens"]
    assert tokens["tokens"][: len(fewer)] == fewer
    assert len(fewer) < asked


def test_tokens_become_their_text_again(server: WebServer) -> None:
    text = "<|im_start|>user\nWhere? 🐦 漢字<|im_end|>"
    tokens = told(server, "/tokenize", prompt=text)["tokens"]
    assert told(server, "/detokenize", model=RECITER, tokens=tokens) == {"prompt": text}
    assert told(server, "/detokenize", tokens=[]) == {"prompt": ""}
    assert told(server, "/tokenize", prompt="")["tokens"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {"model": RECITER}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [USER]}, 400, "prompt"),
        ("/tokenize", {"prompt": ["x"]}, 400, "prompt"),
        ("/tokenize", {"prompt": "x" * 100_000}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "add_special_tokens": "no"}, 400, "add_special_tokens"),
        ("/tokenize", {"model": "gpt-7", "prompt": "x"}, 404, "model"),
        ("/tokenize", {"model": "gpt-7", "messages": [USER]}, 404, "model"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages[0].role"),
        ("/detokenize", {"model": RECITER}, 400, "tokens"),
        ("/detokenize", {"model": "gpt-7", "tokens": [1]}, 404, "model"),
        ("/detokenize", {"tokens": [1, 49152]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [1.5]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": "1"}, 400, "tokens"),
        (CHAT + "/input_tokens", {"model": RECITER}, 400, "messages"),
        (CHAT + "/input_tokens", {"messages": [USER], "temperature": 9}, 400, "temperature"),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(
    server: WebServer, path: str, body: Json, status: int, param: str
) -> None:
    response = post(server, path, body)
    error = error_of(response)
    assert (response.status_code, error["param"]) == (status, param)


def test_keys_are_asked_for_here_too(strict: WebServer) -> None:
    for path in ("/tokenize", "/detokenize", CHAT + "/input_tokens"):
        assert post(strict, path, {"prompt": "x"}).status_code == 401
