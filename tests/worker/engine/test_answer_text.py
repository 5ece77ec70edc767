"""End tokens, stop strings and the length limit, in the order a token meets them."""

import pytest

from tests.worker.engine.doubles import LetterDetokenizer
from worker.engine.answer_text import AnswerText, Piece

A, B, C, END = 0, 1, 2, 40


def push(stops: tuple[str, ...], token_ids: list[int], limit: int = 99) -> list[Piece]:
    text = AnswerText(LetterDetokenizer(), stops, {END})
    return [text.push(token_id, is_last=place + 1 == limit) for place, token_id in enumerate(token_ids)]


@pytest.mark.parametrize(
    ("stops", "token_ids", "limit", "expected"),
    [
        ((), [A, B], 99, [Piece("A"), Piece("B")]),
        ((), [A, END], 99, [Piece("A"), Piece("", "stop")]),  # an end token has no text
        ((), [A, B], 2, [Piece("A"), Piece("B", "length")]),
        (("BC",), [A, B, C], 99, [Piece("A"), Piece(""), Piece("", "stop")]),
        (("BC",), [A, B, C], 3, [Piece("A"), Piece(""), Piece("", "stop")]),  # a match in the last token is a stop
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


def test_a_stop_string_completed_by_the_last_held_character_still_counts() -> None:
    text = AnswerText(HalfDetokenizer(), ("AB",), set())
    assert [text.push(A, False), text.push(B, True)] == [Piece(""), Piece("", "stop")]
