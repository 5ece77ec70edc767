"""Stop strings: matched on the text across token boundaries, and cut exactly before the match, or after it."""

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string is complete; holds back only what may be the beginning of one.

    The match is the one that is complete first, as if the text came character by character, so that it does not
    depend on where the token boundaries lie; among those, the one that began first.
    """

    def __init__(self, stop_strings: Sequence[str], *, keeps_match: bool = False) -> None:
        """`keeps_match`: the stop string belongs to the answer."""
        self._stop_strings = tuple(text for text in stop_strings if text)
        self._keeps_match = keeps_match
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The text that is now certain to belong to the answer. Empty for ever after a match."""
        if self.is_matched or not self._stop_strings:
            return "" if self.is_matched else text
        pending = self._held + text
        match = self._first_match(pending)
        if match is None:
            cut = len(pending) - self._num_held(pending)
            self._held = pending[cut:]
            return pending[:cut]
        end, start, self.matched = match
        self._held = ""
        return pending[: end if self._keeps_match else start]

    @property
    def is_matched(self) -> bool:
        return self.matched is not None

    def flush(self) -> str:
        """The text still held back: no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, pending: str) -> tuple[int, int, str] | None:
        """(end, start, stop string)"""
        found = ((pending.find(stop), stop) for stop in self._stop_strings)
        return min(((start + len(stop), start, stop) for start, stop in found if start >= 0), default=None)

    def _num_held(self, pending: str) -> int:
        return max(_overlap(pending, stop) for stop in self._stop_strings)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
