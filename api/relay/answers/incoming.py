"""Text that is still coming, read as if it were there.

Readers are generators: each pauses where what comes next decides, and goes on when more text is there. So what they
find depends on the text alone, not on how it was cut.
"""

import json
import re
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

ResultT = TypeVar("ResultT")
Steps = Generator[None, None, ResultT]  # each step waits for more text

BROKEN = object()  # in place of a JSON value

_SPACE = re.compile(r"\s*")


class Incoming:
    """What has come and was not taken yet, and a place in it up to which it was looked at."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.is_whole = False

    def take(self) -> str:
        """What was looked at, for good."""
        taken, self.text, self.at = self.text[: self.at], self.text[self.at :], 0
        return taken

    def look_back(self) -> None:
        """As if nothing had been looked at since the last `take`."""
        self.at = 0

    def character(self) -> Steps[str]:
        """The next one, which is not passed; empty at the end."""
        while self.at == len(self.text) and not self.is_whole:
            yield
        return self.text[self.at : self.at + 1]

    def space(self) -> Steps[None]:
        """Passes white space."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or self.is_whole:
                return
            yield

    def word(self, word: str) -> Steps[bool]:
        """Whether this comes next; passes it if so."""
        while not self.is_whole and _begins(word, self.text[self.at :]):
            yield
        is_next = self.text.startswith(word, self.at)
        self.at += len(word) * is_next
        return is_next

    def up_to(self, markers: tuple[str, ...], tell: Callable[[str], None]) -> Steps[str | None]:
        """Takes and tells the text before the first of the markers, and says which; all of it where there is none.

        The marker itself is not passed.
        """
        while True:
            found = [(place, marker) for marker in markers if (place := self.text.find(marker)) >= 0]
            self.at = min(found)[0] if found else len(self.text) - (0 if self.is_whole else self._num_held(markers))
            tell(self.take())
            if found or self.is_whole:
                return min(found)[1] if found else None
            yield

    def value(self) -> Steps[Any]:
        """A whole JSON value, decoded; BROKEN when there is none. Passes it."""
        begin, scanner = self.at, ValueScanner()
        while not scanner.has_ended:
            self.at += scanner.scan(self.text[self.at :])
            if scanner.has_ended or self.is_whole:
                break
            yield
        try:
            value = json.loads(self.text[begin : self.at])
            msgspec.json.encode(value)  # not every string that JSON can spell can be told on: half a surrogate pair
        except (ValueError, RecursionError):
            return BROKEN
        return value

    def raw_value(self, tell: Callable[[str], None]) -> Steps[None]:
        """Takes a JSON value and tells its text as it comes."""
        self.take()
        scanner = ValueScanner()
        while not scanner.has_ended:
            self.at = scanner.scan(self.text)
            tell(self.take())
            if scanner.has_ended or self.is_whole:
                return
            yield

    def _num_held(self, markers: tuple[str, ...]) -> int:
        """How much of the end may be the beginning of a marker."""
        sizes = range(min(max(map(len, markers)) - 1, len(self.text)), 0, -1)
        return next((size for size in sizes if any(_begins(marker, self.text[-size:]) for marker in markers)), 0)


def _begins(word: str, text: str) -> bool:
    """Whether `text` is the beginning of `word` and not all of it."""
    return len(text) < len(word) and word.startswith(text)


_IN_STRING = re.compile(r'[^"\\]*')
_OUTSIDE = re.compile(r'[^"{}\[\],\s]*')


class ValueScanner:
    """Finds the end of one JSON value that comes in pieces. It is not checked otherwise."""

    def __init__(self) -> None:
        self.has_ended = False
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self._has_begun = False

    def scan(self, text: str) -> int:
        """How many characters of the next piece belong to the value."""
        at = 0
        while at < len(text) and not self.has_ended:
            at = self._string_character(text, at) if self._is_in_string else self._other_character(text, at)
        return at

    def _string_character(self, text: str, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        found = _IN_STRING.match(text, at)
        at = found.end() if found else at
        if at == len(text):
            return at
        self._is_escaped = text[at] == "\\"
        self._is_in_string = self._is_escaped
        self.has_ended = not self._is_in_string and self._depth == 0
        return at + 1

    def _other_character(self, text: str, at: int) -> int:
        character = text[at]
        if self._depth == 0 and self._has_begun and (character in ',]}"[{' or character.isspace()):
            self.has_ended = True  # a number or a word, which shows its end only by what follows
            return at
        if character in "]}" and not self._has_begun:
            self.has_ended = True  # no value at all
            return at
        self._has_begun = True
        self._is_in_string = character == '"'
        self._depth += (character in "{[") - (character in "}]")
        if character in "}]" and self._depth == 0:
            self.has_ended = True
        if character in '"{}[],' or character.isspace():
            return at + 1
        found = _OUTSIDE.match(text, at)
        return found.end() if found else at + 1
