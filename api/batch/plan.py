"""The order in which a batch's lines are run, as a compact object: where each line lies in the input file.

Lines whose prompts begin alike stand together, so that the later ones find the earlier ones' pages in the prefix cache.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

_ENTRY = struct.Struct("<QII")  # offset and length in bytes, line number
_DEPTHS = (512, 2048, 8192, 32768)  # bytes of a prompt's beginning that are compared
_NUM_PLAIN = 64


class PlannedLine(NamedTuple):
    offset: int
    length: int
    number: int
    key: bytes = b""  # orders the lines of one plan


class _Prompt(msgspec.Struct):
    """What makes up the beginning of a prompt, whichever endpoint it is for."""

    model: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


def prompt_key(body: msgspec.Raw) -> bytes:
    """Sorted by it, bodies with equal beginnings are neighbours, those with longer ones closer still."""
    found = msgspec.json.decode(body, type=_Prompt)
    text = b"\n".join(map(bytes, (found.tools, found.instructions, found.messages, found.prompt, found.input)))
    digests = (hashlib.blake2b(text[:depth], digest_size=6).digest() for depth in _DEPTHS if len(text) >= depth)
    return text[:_NUM_PLAIN] + b"".join(digests)


def encoded_plan(lines: Iterable[PlannedLine]) -> bytes:
    """In the order of running: lines of one key keep the order they have in the file."""
    ordered = sorted(lines, key=lambda line: (line.key, line.number))
    return b"".join(_ENTRY.pack(line.offset, line.length, line.number) for line in ordered)


class LinePlan:
    """An encoded plan, read by place."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    def __getitem__(self, place: int) -> PlannedLine:
        return PlannedLine(*_ENTRY.unpack_from(self._data, place * _ENTRY.size))

    def from_place(self, start: int) -> Iterator[PlannedLine]:
        return (self[place] for place in range(start, len(self)))
