"""The lines of a batch's input file, read in pieces: neither the file nor a line too long is ever whole in memory."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

READ_SIZE = 1024 * 1024  # bytes


@dataclass(frozen=True)
class InputLine:
    """A line without its end. `number` counts from 1, as editors do; one too long has only its beginning."""

    number: int
    offset: int
    text: bytes
    is_too_long: bool = False


def input_lines(file: BinaryIO, max_bytes: int) -> Iterator[InputLine]:
    """All lines but those with nothing on them, which count nevertheless. They end in LF or CRLF; a BOM may lead."""
    first = file.read(len(codecs.BOM_UTF8))
    has_mark = first == codecs.BOM_UTF8
    offset, held = (len(first), b"") if has_mark else (0, first)
    number, excess, is_over = 1, 0, False  # excess: bytes of a line too long that were let go
    while not is_over:
        piece = file.read(READ_SIZE)
        is_over = not piece
        *whole, held = (held + piece).split(b"\n")
        if is_over and held:
            whole, held = [held], b""
        for text in whole:
            length = len(text) + excess
            line = InputLine(number, offset, text.removesuffix(b"\r"), is_too_long=length > max_bytes)
            if excess or line.text.strip():
                yield line
            number, offset, excess = number + 1, offset + length + 1, 0
        if len(held) > max_bytes:
            excess += len(held) - max_bytes
            held = held[:max_bytes]
