"""The text of one answer: detokenizer, stop strings and end tokens in the order a token passes them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from worker.engine.detokenizer import Detokenizer
from worker.engine.stopping import StopMatcher
from worker.protocol.event import FinishReason


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token added: text that is final, and why the answer ends with it, if it does."""

    text: str
    finish: FinishReason | None = None


class AnswerText:
    """A pure function of the tokens pushed so far: after a crash, pushing them again leads to the same state."""

    def __init__(self, detokenizer: Detokenizer, stop_strings: Sequence[str], end_token_ids: Collection[int]) -> None:
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stop_strings)
        self._end_token_ids = end_token_ids

    def push(self, token_id: int, is_last: bool) -> Piece:
        """`is_last`: the answer may not grow further, so everything held back comes out."""
        if token_id in self._end_token_ids:  # never shown, and never longer than allowed
            return Piece(self._close(), "stop")
        text = self._stops.feed(self._detokenizer.feed(token_id))
        if is_last:
            text += self._close()
        if self._stops.is_matched:
            return Piece(text, "stop")
        return Piece(text, "length" if is_last else None)

    def _close(self) -> str:
        return self._stops.feed(self._detokenizer.flush()) + self._stops.flush()
