"""Where each token stands in a choice's text. A token is told of when its text is shown, never before or without it."""

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from worker.protocol.event import FinishReason, TokenLogprob, TokenLogprobs


@dataclass(frozen=True, slots=True)
class PlacedToken:
    offset: int  # in characters, from the beginning of the choice's text; within a character, of that character
    text: bytes  # its own bytes, which may be a part of a character
    is_shown: bool  # False for control tokens, which no text shows
    told: TokenLogprobs | None  # None for the first token of a prompt


class TokenPlaces:
    """Fed with the tokens and the text of one choice, gives the tokens whose text is out.

    The text of a token that may belong to a stop string is held back, and what a stop string cuts off is never shown.
    """

    def __init__(self, begin: int = 0) -> None:
        """`begin`: how many characters stand before the first token."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._waiting: deque[tuple[bytes, TokenLogprobs | None]] = deque()
        self._begin = begin
        self._text = ""  # of these tokens, as far as it was shown
        self._num_placed = 0  # characters of it that belong to placed tokens

    def feed(self, tokens: Iterable[TokenLogprobs], text: str, finish: FinishReason | None) -> list[PlacedToken]:
        """`tokens` are new; `text` was shown since, and with `finish` it is all there will be."""
        return self._place([(token.chosen.text, token) for token in tokens], text, finish)

    def feed_prompt(self, tokens: Sequence[TokenLogprobs | None], text: str) -> list[PlacedToken]:
        """All tokens of a prompt. Nothing is told of the first one, whose bytes are those that the others leave."""
        rest = [(token.chosen.text, token) for token in tokens[1:] if token is not None]
        whole = text.encode()
        first = whole[: max(0, len(whole) - sum(len(own) for own, _ in rest))]
        return self._place([(first, None), *rest], text, "length")

    def _place(
        self, tokens: Iterable[tuple[bytes, TokenLogprobs | None]], text: str, finish: FinishReason | None
    ) -> list[PlacedToken]:
        self._waiting += tokens
        self._text += text
        placed = []
        while self._waiting and (width := self._width(self._waiting[0][0], finish)) is not None:
            own, told = self._waiting.popleft()
            placed.append(PlacedToken(self._begin + self._num_placed, own, width >= 0, told))
            self._num_placed += max(width, 0)
        return placed

    def _width(self, own: bytes, finish: FinishReason | None) -> int | None:
        """How many characters the next token completes, -1 for a control token; None while that is uncertain."""
        before = self._decoder.getstate()
        text = self._decoder.decode(own)
        shown = self._text[self._num_placed : self._num_placed + len(text)]
        if self._num_placed == 0 and text.startswith(" ") and not text.startswith(shown):
            text = text[1:]  # some vocabularies drop the space that a text would begin with
            shown = shown[: len(text)]
        if not text.startswith(shown):
            self._decoder.setstate(before)
            return -1
        has_more = len(self._text) > self._num_placed
        if has_more and len(shown) == len(text):
            return len(text)
        if finish and (has_more or finish == "length"):
            return len(shown) if has_more or not text else -1
        self._decoder.setstate(before)
        return None


def token_text(token: TokenLogprob | PlacedToken) -> str:
    """A token as a string; bytes that are no whole character as ``\\xf0``."""
    return token.text.decode("utf-8", "backslashreplace")
