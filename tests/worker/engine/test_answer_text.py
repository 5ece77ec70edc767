"""End tokens, stop strings and the length limit, in the order a token meets them."""

from typing import Any

import pytest

from tests.worker.engine.doubles import LetterDetokenizer
from worker.engine.answer_text import AnswerText, Piece
from worker.protocol.job import SamplingParams

A, B, C, END = 0, 1, 2, 40


def params(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 9, "seed": 0, **changes})


def push(stops: tuple[str, ...], token_ids: list[int], limit: int = 99, **changes: Any) -> list[Piece]:
    text = AnswerText(LetterDetokenizer(), params(stop=stops, **changes), frozenset({END}))
    return [text.push(token_id, is_last=place + 1 == limit) for place, token_id in enumerate(token_ids)]


@pytest.mark.parametrize(
    ("stops", "token_ids", "limit", "expected"),
    [
        ((), [A, B], 99, [Piece("A"), Piece("B")]),
        ((), [A, END], 99, [Piece("A"), Piece("", "stop")]),  # an end token has no text
        ((), [A, B], 2, [Piece("A"), Piece("B", "length")]),
        (("BC",), [A, B, C], 99, [Piece("A"), Piece(""), Piece("", "stop", "BC")]),
        (
            ("BC",),
            [A, B, C],
            3,
            [Piece("A"), Piece(""), Piece("", "stop", "BC")],
        ),  # a match in the last token is a stop
        (("BC",), [A, B], 2, [Piece("A"), Piece("B", "length")]),  # what was held back comes out at the end
        (("BC",), [B, END], 99, [Piece(""), Piece("B", "stop")]),
        ((), [END], 1, [Piece("", "stop")]),  # the end token at the limit is a stop, not a cut
    ],
)
def test_the_answer_ends_for_the_right_reason(
    stops: tuple[str, ...], token_ids: list[int], limit: int, expected: list[Piece]
) -> None:
    assert push(stops, token_ids, limit) == expected


class HalfDetokenizer:
    """Shows everything one token late, as a detokenizer does that waits for the rest of a character."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, token_id: int) -> str:
        shown, self._held = self._held, chr(ord("A") + token_id)
        return shown

    def flush(self) -> str:
        return self._held

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


def test_a_stop_string_completed_by_the_last_held_character_still_counts() -> None:
    text = AnswerText(HalfDetokenizer(), params(stop=("AB",)), frozenset())
    assert [text.push(A, False), text.push(B, True)] == [Piece(""), Piece("", "stop", "AB")]


def test_a_special_token_is_shown_as_it_is_written_where_the_job_says_so() -> None:
    text = AnswerText(HalfDetokenizer(), params(shown_tokens=(C,)), frozenset({END}))
    assert [text.push(A, False).text, text.push(C, False).text] == ["", "A\x02"]  # what was held comes before it


def test_a_job_may_name_end_tokens_of_its_own_and_ignore_the_models() -> None:
    assert push((), [A, C], stop_token_ids=(C,)) == [Piece("A"), Piece("", "stop", C)]
    assert push((), [A, END], stop_token_ids=(C,)) == [Piece("A"), Piece("", "stop")]
    assert push((), [END, C], stop_token_ids=(C,), ignore_eos=True) == [Piece("i"), Piece("", "stop", C)]
    assert push((), [END, END], 2, ignore_eos=True) == [Piece("i"), Piece("i", "length")]


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([B, C, A, B, C], [Piece("B"), Piece("C"), Piece("A"), Piece(""), Piece("", "stop", "BC")]),
        ([A, B, C, A], [Piece("A"), Piece("B"), Piece("C"), Piece("A")]),  # a match may not begin too early
        ([A, B, END], [Piece("A"), Piece("B"), Piece("", "stop")]),
    ],
)
def test_before_min_tokens_no_stop_string_counts(token_ids: list[int], expected: list[Piece]) -> None:
    assert push(("BC",), token_ids, min_tokens=2) == expected


def test_the_limit_ends_an_answer_before_min_tokens() -> None:
    assert push(("A",), [A, A], 2, min_tokens=5) == [Piece("A"), Piece("A", "length")]


def test_the_mark_of_the_end_is_not_part_of_the_text() -> None:
    text = AnswerText(LetterDetokenizer(), params(stop=("B",)), frozenset({END}))
    assert text.is_shown(A, text.push(A, False))
    assert not text.is_shown(END, Piece("", "stop"))
    assert text.is_shown(B, text.push(B, False))  # ends by a stop string, but it is no end token
    assert text.token_bytes(C) == b"C"
