"""A token is told of with its text: at its place, not before, and not without it."""

import pytest

from api.relay.dialects.token_places import PlacedToken, TokenPlaces
from worker.protocol.event import FinishReason, TokenLogprob, TokenLogprobs

BIRD = "🐦".encode()


def token(text: str | bytes) -> TokenLogprobs:
    return TokenLogprobs(TokenLogprob(7, -0.5, text.encode() if isinstance(text, str) else text))


def facts(placed: list[PlacedToken]) -> list[tuple[int, bytes, bool]]:
    return [(each.offset, each.text, each.is_shown) for each in placed]


def placed(
    *steps: tuple[str | bytes, str], finish: FinishReason = "stop", begin: int = 0
) -> list[list[tuple[int, bytes, bool]]]:
    """What each step places: (its token, the text shown with it). The last step ends the answer."""
    places = TokenPlaces(begin)
    last = len(steps) - 1
    return [
        facts(places.feed([token(own)], text, finish if i == last else None)) for i, (own, text) in enumerate(steps)
    ]


def test_each_token_stands_where_its_text_begins() -> None:
    assert placed(("The", "The"), (" river", " river"), (".", "."), begin=10) == [
        [(10, b"The", True)],
        [(13, b" river", True)],
        [(19, b".", True)],
    ]


def test_the_parts_of_a_character_stand_at_it_and_wait_for_it() -> None:
    assert placed((b"a" + BIRD[:2], "a"), (BIRD[2:3], ""), (BIRD[3:] + b"b", "🐦b"), ("c", "c")) == [
        [(0, b"a" + BIRD[:2], True)],
        [],
        [(1, BIRD[2:3], True), (1, BIRD[3:] + b"b", True)],
        [(3, b"c", True)],
    ]


def test_bytes_that_never_become_a_character_stand_at_what_replaces_them() -> None:
    assert placed((BIRD[:2], ""), (" x", "\ufffd x"), (BIRD[:1], "\ufffd"), finish="length") == [
        [],
        [(0, BIRD[:2], True), (0, b" x", True)],
        [(3, BIRD[:1], True)],
    ]


def test_tokens_wait_while_their_text_may_begin_a_stop_string() -> None:
    assert placed((" EN", ""), ("OUGH", " ENOUGH"), finish="length") == [[], [(0, b" EN", True), (3, b"OUGH", True)]]


def test_what_a_stop_string_cuts_off_is_not_told() -> None:
    assert placed(("one", "one"), (" EN", ""), ("D of", "")) == [[(0, b"one", True)], [], []]
    assert placed(("one", "one"), (" EN", " "), ("D of", "")) == [[(0, b"one", True)], [], [(3, b" EN", True)]]


def test_control_tokens_take_no_room() -> None:
    assert placed(("a", "a"), ("<|im_start|>", ""), ("<b", "<b"), ("<|im_end|>", ""), finish="length") == [
        [(0, b"a", True)],
        [],
        [(1, b"<|im_start|>", False), (1, b"<b", True)],
        [(3, b"<|im_end|>", False)],
    ]


def test_a_control_token_inside_a_character_disturbs_nothing() -> None:
    assert placed((BIRD[:2], ""), ("<|x|>", ""), (BIRD[2:], "🐦"), ("!", "!")) == [
        [],
        [],
        [(0, BIRD[:2], True), (0, b"<|x|>", False), (0, BIRD[2:], True)],
        [(1, b"!", True)],
    ]


@pytest.mark.parametrize("begin", [0, 5])
def test_a_space_that_the_text_does_not_begin_with_takes_no_room(begin: int) -> None:
    assert placed((" Hi", "Hi"), (" you", " you"), begin=begin) == [
        [(begin, b" Hi", True)],
        [(begin + 2, b" you", True)],
    ]


def prompt(text: str, *tokens: str | bytes) -> list[tuple[int, bytes, bool]]:
    return facts(TokenPlaces().feed_prompt([None, *map(token, tokens)], text))


def test_a_prompts_first_token_has_what_the_others_leave() -> None:
    assert prompt("The river.", " river", ".") == [(0, b"The", True), (3, b" river", True), (9, b".", True)]
    assert prompt("🐦 x", BIRD[3:], " x") == [(0, BIRD[:3], True), (0, BIRD[3:], True), (1, b" x", True)]
    assert prompt("<|im_start|>user", "user") == [(0, b"<|im_start|>", True), (12, b"user", True)]


def test_a_start_token_that_is_not_in_the_prompts_text_takes_no_room() -> None:
    assert prompt("Hi you", "Hi", " you") == [(0, b"", True), (0, b"Hi", True), (2, b" you", True)]
    assert prompt("Hi you", " Hi", " you") == [(0, b"", True), (0, b" Hi", True), (2, b" you", True)]
