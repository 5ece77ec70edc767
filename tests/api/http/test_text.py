"""Given an answer whose tokens are known, its text is the tokenizer's own, streamed or whole, wherever it ends."""

from typing import Any

import pytest

from tests.api.http.client import COMPLETIONS, answered, completion_body, counts, error_of, post, streamed, text_of
from tests.api.http.reciter import PIECES, Recital
from tests.stack import WebServer

REPLACEMENT = "\ufffd"


def recited(server: WebServer, prompt: list[int], num_tokens: int, **more: Any) -> tuple[str, str]:
    """Text and finish reason, which are the same whole and streamed."""
    body = completion_body(prompt, num_tokens, **more)
    whole = answered(server, COMPLETIONS, body)
    stream = streamed(server, COMPLETIONS, body | {"stream_options": {"include_usage": True}})
    assert stream.text() == text_of(whole)
    assert stream.finish() == whole["choices"][0]["finish_reason"]
    assert counts(stream.chunks[-1]["usage"]) == counts(whole["usage"])
    return text_of(whole), stream.finish()


@pytest.mark.parametrize("piece", PIECES)
def test_each_piece_is_the_tokenizers_own_text_and_ends_with_the_end_token(
    server: WebServer, recital: Recital, piece: str
) -> None:
    prompt, num = recital.prompt(piece), recital.num_tokens(piece)
    assert recited(server, prompt, 100) == (recital.text(len(prompt), num), "stop")


def test_characters_of_many_tokens_come_whole(server: WebServer, recital: Recital) -> None:
    stream = streamed(server, COMPLETIONS, completion_body(recital.prompt("emoji"), 43))
    assert stream.text() == PIECES["emoji"]
    assert "🐦" in stream.pieces()  # in one chunk, though it took three tokens
    assert all(REPLACEMENT not in piece for piece in stream.pieces())


@pytest.mark.parametrize("num_tokens", [3, 4, 5, 8, 10, 11, 17, 20])
def test_an_answer_cut_by_its_limit_inside_a_character_flushes_what_was_held_back(
    server: WebServer, recital: Recital, num_tokens: int
) -> None:
    prompt = recital.prompt("emoji")
    assert recited(server, prompt, num_tokens) == (recital.text(len(prompt), num_tokens), "length")


@pytest.mark.parametrize("num_tokens", [1, 2, 4, 5, 7, 9])
def test_bytes_that_never_become_a_character_are_shown_as_the_tokenizer_shows_them(
    server: WebServer, recital: Recital, num_tokens: int
) -> None:
    prompt = recital.prompt("broken")
    text, _ = recited(server, prompt, num_tokens)
    assert text == recital.text(len(prompt), num_tokens)
    assert REPLACEMENT in text


def test_white_space_is_kept_to_the_character(server: WebServer, recital: Recital) -> None:
    assert recited(server, recital.prompt("spaces"), 100) == (PIECES["spaces"], "stop")


def test_special_tokens_in_an_answer_are_never_shown(server: WebServer, recital: Recital) -> None:
    ids = PIECES["special"]
    assert isinstance(ids, list)
    words = recital.decode([token_id for token_id in ids if token_id > 16])
    assert recited(server, recital.prompt("special"), 100) == (words, "stop")


def test_the_end_token_is_counted_but_not_shown(server: WebServer, recital: Recital) -> None:
    whole = answered(server, COMPLETIONS, completion_body(recital.prompt("ending"), 100))
    assert (text_of(whole), whole["usage"]["completion_tokens"]) == ("All done.", 4)


@pytest.mark.parametrize(
    ("num_tokens", "finish"),
    [(1, "length"), (2, "length"), (3, "length"), (4, "stop"), (5, "stop")],
)
def test_the_finish_reason_is_length_only_when_the_limit_cut_the_answer(
    server: WebServer, recital: Recital, num_tokens: int, finish: str
) -> None:
    assert recited(server, recital.prompt("ending"), num_tokens)[1] == finish


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("END", "one, two; three -- four "),
        ("END.", "one, two; three -- four ENDING of ENDLESS "),
        (["nowhere", "END.", "LESS"], "one, two; three -- four ENDING of END"),
        ("wo; th", "one, t"),
        (", ", "one"),
        ("one", ""),
        (["ENDING of ENDLESS END. f", "ree -"], "one, two; th"),
        ("four ENDING of ENDLESS END!", None),
        ("five and more", None),
        ([], None),
        (None, None),
    ],
)
def test_a_stop_string_cuts_exactly_before_itself_and_leaves_no_trace(
    server: WebServer, recital: Recital, stop: Any, text: str | None
) -> None:
    expected = PIECES["stops"] if text is None else text
    assert recited(server, recital.prompt("stops"), 100, stop=stop) == (expected, "stop")


def test_text_held_back_for_a_stop_string_comes_out_at_the_limit(server: WebServer, recital: Recital) -> None:
    prompt, num = recital.prompt("stops"), recital.num_tokens("stops")
    assert recited(server, prompt, num, stop="five and more") == (PIECES["stops"], "length")


def test_a_stop_string_complete_in_the_last_token_allowed_is_a_stop(server: WebServer, recital: Recital) -> None:
    prompt, num = recital.prompt("stops"), recital.num_tokens("stops")
    expected = "one, two; three -- four ENDING of ENDLESS END."
    assert recited(server, prompt, num, stop=" five") == (expected, "stop")


def test_a_stop_string_may_be_made_of_characters_of_many_tokens(server: WebServer, recital: Recital) -> None:
    assert recited(server, recital.prompt("emoji"), 100, stop="🚀 ") == ("Look: 🐦👩‍", "stop")


def test_only_what_may_begin_a_stop_string_is_held_back(server: WebServer, recital: Recital) -> None:
    body = completion_body(recital.prompt("stops"), 100, stop="; three -- never")
    pieces = streamed(server, COMPLETIONS, body).pieces()
    assert "".join(pieces) == PIECES["stops"]
    assert pieces[2:4] == [" two", "; three -- four"]


def test_an_empty_stop_string_is_refused_by_name(server: WebServer) -> None:
    for stop, param in (("", "stop"), (["x", ""], "stop[1]")):
        response = post(server, COMPLETIONS, completion_body("x", stop=stop))
        assert (response.status_code, error_of(response)["param"]) == (400, param)
