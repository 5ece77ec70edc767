"""multipart/form-data as it arrives: a file in it is never in memory as a whole."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio import multipart

from api.errors import bad_request, unsupported_media_type

MAX_PARTS = 32
MAX_FIELD_BYTES = 8 * 1024
OVERHEAD = 512 * 1024  # bytes that a form with one file may have beside the file's own
_MAX_BUFFERED = 256 * 1024  # of a part's head, or of what stands before the first part or behind the last
_MAX_BOUNDARY = 200  # characters


@dataclass(frozen=True)
class Field:
    name: str
    value: str


@dataclass(frozen=True)
class FileBegins:
    """The bytes of this file follow, up to the next part."""

    name: str
    filename: str


def form_parts(pieces: Iterable[bytes], content_type: str) -> Iterator[Field | FileBegins | bytes]:
    """The parts of a form whose body comes in `pieces` of at most 64 KiB.

    Raises ApiError 415 for another type, 400 for a form that is not whole and well-formed or has too much in it.
    """
    decoder = multipart.MultipartDecoder(_boundary(content_type), _MAX_BUFFERED, max_parts=MAX_PARTS)
    field, value = "", b""
    is_file = False
    for event in _events(decoder, pieces):
        if isinstance(event, multipart.File | multipart.Field):
            field, value, is_file = _name_of(event), b"", isinstance(event, multipart.File)
        if isinstance(event, multipart.File):
            yield FileBegins(field, event.filename)
        elif isinstance(event, multipart.Data) and is_file:
            yield event.data
        elif isinstance(event, multipart.Data):
            value += event.data
            if len(value) > MAX_FIELD_BYTES:
                raise bad_request(f"A field of the form is longer than {MAX_FIELD_BYTES} bytes.", field)
            if not event.more_data:
                yield Field(field, _text(field, value))


def _events(decoder: multipart.MultipartDecoder, pieces: Iterable[bytes]) -> Iterator[multipart.Event]:
    try:
        for piece in pieces:
            decoder.receive_data(piece)
            while not isinstance(event := decoder.next_event(), multipart.NeedData):
                yield event
        decoder.receive_data(None)
        while not isinstance(event := decoder.next_event(), multipart.Epilogue):
            yield event
    except RequestEntityTooLarge:
        raise bad_request(f"The form has more than {MAX_PARTS} parts, or a part's head is too long.") from None
    except ValueError as error:
        raise bad_request(f"The request body is not a whole, well-formed form: {error}.") from None


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind.lower() != "multipart/form-data":
        named = f"Content-Type {kind[:80]!r} is not supported" if kind else "There is no Content-Type"
        raise unsupported_media_type(f"{named}; send multipart/form-data.")
    boundary = options.get("boundary", "")
    if not (boundary.isascii() and 0 < len(boundary) <= _MAX_BOUNDARY):
        raise bad_request("The Content-Type header must name the boundary between the parts of the form.")
    return boundary.encode()


def _name_of(part: multipart.File | multipart.Field) -> str:
    if not part.name:
        raise bad_request("A part of the form has no name.")
    return part.name


def _text(field: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise bad_request(f"'{field}' must be text in UTF-8.", field) from None
