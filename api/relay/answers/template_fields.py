"""Where the fields of a message begin and end in its text, as a response template of transformers says.

Transformers' own parser finds the same, but ends at a call that is no whole one, and says neither where it stands nor
what it held back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from transformers.utils.chat_parsing.response_templates import ResponseTemplate, ResponseTemplateField


@dataclass(frozen=True, slots=True)
class FieldPiece:
    kind: Literal["opens", "text", "closes"]
    field: str  # empty: what belongs to none
    text: str  # the mark itself where it opens or closes


@dataclass(frozen=True)
class Mark:
    """What opens a field, or closes the one that is open."""

    pattern: Any  # of the regex package, which tells what may still become a match
    opens: str  # empty: it closes
    is_literal: bool
    can_extend: bool  # one of its literals is the beginning of another

    def may_change(self, found: Any, text: str, end: int) -> bool:
        """Whether more text could make this match another one, or none. `end` is where the text ends so far."""
        if found.partial:
            return True
        if found.end() == end:
            return not self.is_literal or self.can_extend
        if self.is_literal:
            return False
        longer = self.pattern.match(text[:end] + "\0", found.start())  # it may have met the end itself
        return longer is None or longer.span() != found.span() or longer.groups() != found.groups()


class FieldFinder:
    """Looks at one character after the other, so that what it finds does not depend on how the text was cut."""

    def __init__(self, template: ResponseTemplate) -> None:
        fields = template.fields.values()
        self._implicit = template.implicit or ""
        self._opening = [mark for field in fields if (mark := _opening(field))]
        self._closing = {field.name: mark for field in fields if (mark := _closing(field))}
        self.field = self._implicit  # the one that is open
        self._text = ""  # what has not been told yet
        self._seen = 0  # so much of it was looked at
        self._free = 0  # so much of it is certain to be no mark
        self._has_moved = True  # since a mark without a width, which else would be found for ever

    def feed(self, text: str) -> Iterator[FieldPiece]:
        self._text += text
        while self._seen < len(self._text):
            self._seen += 1
            yield from self._pass_marks(is_last=False)
        yield from self._tell()

    def close(self) -> Iterator[FieldPiece]:
        """The text has ended, and with it the field that is open."""
        yield from self._pass_marks(is_last=True)
        yield from self.drop_held()
        yield FieldPiece("closes", self.field, "")

    def drop_held(self) -> Iterator[FieldPiece]:
        """What may have become a mark is none."""
        self._free = len(self._text)
        yield from self._tell()

    def _pass_marks(self, is_last: bool) -> Iterator[FieldPiece]:
        while (found := self._next(is_last)) is not None:
            mark, text = found
            yield from self._tell()
            self._cut(len(text))
            self._has_moved = bool(text)
            if mark.opens:
                yield FieldPiece("closes", self.field, "")
                yield FieldPiece("opens", mark.opens, text)
            else:
                yield FieldPiece("closes", self.field, text)
            self.field = mark.opens or self._implicit

    def _next(self, is_last: bool) -> tuple[Mark, str] | None:
        """The first mark that is certain by now, the longest if several begin there; counts what stands before it."""
        held, best = self._seen, None
        for mark in self._watched():
            found = mark.pattern.search(self._text, self._free, self._seen, partial=not is_last)
            if found is None:
                continue
            if not is_last and mark.may_change(found, self._text, self._seen):
                held = min(held, found.start())
            elif found.end() > found.start() or self._has_moved:
                rank = (found.start(), -found.end(), not mark.opens)
                best = min(best or (rank, mark, found), (rank, mark, found), key=lambda each: each[0])
        if best is None or best[2].start() >= held:
            self._free = held
            return None
        self._free = best[2].start()
        return best[1], best[2].group()

    def _watched(self) -> list[Mark]:
        closing = [self._closing[self.field]] if self.field in self._closing else []
        return [*self._opening, *closing] if self.field == self._implicit else closing

    def _tell(self) -> Iterator[FieldPiece]:
        text = self._text[: self._free]
        self._cut(self._free)
        if text:
            self._has_moved = True
            yield FieldPiece("text", self.field, text)

    def _cut(self, size: int) -> None:
        self._text = self._text[size:]
        self._seen -= size
        self._free = 0


def _opening(field: ResponseTemplateField) -> Mark | None:
    if field.open_re is None:
        return None
    return Mark(field.open_re, field.name, field.open_literals is not None, field.open_literal_can_extend)


def _closing(field: ResponseTemplateField) -> Mark | None:
    if field.close_re is None:
        return None
    return Mark(field.close_re, "", field.close_literals is not None, field.close_literal_can_extend)
