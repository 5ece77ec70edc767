"""The text of one answer: detokenizer, stop strings and end tokens in the order a token passes them."""

from dataclasses import dataclass

from worker.engine.detokenizer import Detokenizer
from worker.engine.stopping import StopMatcher
from worker.protocol.event import FinishReason
from worker.protocol.job import SamplingParams


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token added: text that is final, and why the answer ends with it, if it does."""

    text: str
    finish: FinishReason | None = None
    matched_stop: str | int | None = None  # the stop string, or the token among the job's own stop tokens


class AnswerText:
    """A pure function of the tokens pushed so far: after a crash, pushing them again leads to the same state."""

    def __init__(self, detokenizer: Detokenizer, sampling: SamplingParams, model_end_ids: frozenset[int]) -> None:
        """`model_end_ids` are the tokens that end an answer unless the job ignores them."""
        self._detokenizer = detokenizer
        self._stops = StopMatcher(sampling.stop, keeps_match=sampling.include_stop)
        self._stop_token_ids = sampling.stop_token_ids
        self._shown_tokens = frozenset(sampling.shown_tokens)
        self._num_to_come = sampling.min_tokens  # before nothing but the limit ends the answer
        self.end_token_ids = (frozenset() if sampling.ignore_eos else model_end_ids).union(sampling.stop_token_ids)

    def push(self, token_id: int, is_last: bool) -> Piece:
        """`is_last`: the answer may not grow further, so everything held back comes out."""
        if self._num_to_come > 0:
            self._num_to_come -= 1
            text = self._text_of(token_id)
        elif token_id in self.end_token_ids:  # never shown, and never longer than allowed
            return Piece(self.close(), "stop", token_id if token_id in self._stop_token_ids else None)
        else:
            text = self._stops.feed(self._text_of(token_id))
        if is_last:
            text += self.close()
        if self._stops.is_matched:
            return Piece(text, "stop", self._stops.matched)
        return Piece(text, "length" if is_last else None)

    def is_shown(self, token_id: int, piece: Piece) -> bool:
        """Whether the token that gave this piece is part of the text, not the mark of its end."""
        return piece.finish != "stop" or token_id not in self.end_token_ids

    def token_bytes(self, token_id: int) -> bytes:
        """The text of one token by itself, as bytes: it may be a part of a character."""
        return self._detokenizer.token_bytes(token_id)

    def close(self) -> str:
        """What is held back: the answer ends here. Empty when it has come out already."""
        return self._stops.feed(self._detokenizer.flush()) + self._stops.flush()

    def _text_of(self, token_id: int) -> str:
        if token_id in self._shown_tokens:
            return self._detokenizer.flush() + self.token_bytes(token_id).decode("utf-8", "replace")
        return self._detokenizer.feed(token_id)
