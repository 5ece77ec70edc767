"""What is right and wrong about a batch's input file, line by line, before any of it is run.

Of the bodies nothing is checked but that they are objects: they go the way of every request when their turn comes.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from api.batch.input_lines import InputLine, input_lines
from api.batch.plan import PlannedLine, prompt_key
from api.batch.records import LineError

MAX_LINES = 50_000
MAX_CUSTOM_ID_CHARS = 512
MAX_REPORTED = 1000  # line errors in the batch object; all of them are in the error file
# Of a line that cannot be read, the custom_id can still be told where it comes first, as it mostly does.
_LEADING_ID = re.compile(rb'\s*\{\s*"custom_id"\s*:\s*("(?:[^"\\]|\\.){1,512}")')


class RawLine(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw()


class _NamedModel(msgspec.Struct):
    model: Any = None


@dataclass(frozen=True)
class BadLine:
    """`custom_id` is None where it could not be read."""

    number: int
    custom_id: str | None
    error: LineError


class Unusable(Exception):
    """Nothing of the file can be run."""

    def __init__(self, errors: list[LineError], total: int) -> None:
        super().__init__(errors[0].message)
        self.errors = errors
        self.total = total


@dataclass
class Findings:
    """What is known of the lines so far. Bad lines are handed out as they are found, not kept."""

    good: list[PlannedLine] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)  # the first of them
    num_bad: int = 0
    models: set[str] = field(default_factory=set)

    @property
    def total(self) -> int:
        return len(self.good) + self.num_bad

    @property
    def model(self) -> str:
        """The one that all lines name; empty where they differ."""
        return next(iter(self.models)) if len(self.models) == 1 else ""


class _BadLineError(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


def check_lines(file: BinaryIO, endpoint: str, max_line_bytes: int, findings: Findings) -> Iterator[BadLine]:
    """The bad lines, in order; the good ones go into `findings`. Raises Unusable when there is none to run."""
    seen: set[bytes] = set()
    for line in input_lines(file, max_line_bytes):
        if findings.total == MAX_LINES:
            message = f"The batch file has more than {MAX_LINES} requests."
            raise Unusable([LineError("too_many_requests", message)], findings.total)
        custom_id: str | None = None
        try:
            raw = _parsed(line, max_line_bytes)
            custom_id = _checked_id(raw.custom_id)
            _remember(custom_id, seen)
            _check_envelope(raw, endpoint)
            findings.good.append(_planned(line, raw.body, findings))
        except _BadLineError as error:
            found = LineError(error.code, f"Line {line.number}: {error}", line.number, error.param)
            findings.num_bad += 1
            if len(findings.errors) < MAX_REPORTED:
                findings.errors.append(found)
            yield BadLine(line.number, custom_id or _leading_id(line.text), found)
    if findings.total == 0:
        raise Unusable([LineError("empty_file", "The batch file has no requests.")], 0)
    if not findings.good:
        raise Unusable(findings.errors, findings.total)


def custom_id_of(text: bytes) -> str:
    """Of a line that was found good."""
    return str(msgspec.json.decode(text, type=RawLine).custom_id)


def _parsed(line: InputLine, max_bytes: int) -> RawLine:
    if line.is_too_long:
        raise _BadLineError("line_too_large", f"This line is longer than {max_bytes} bytes.")
    if line.text.lstrip()[:1] not in (b"{", b""):
        _check_json(line.text)
        raise _BadLineError("invalid_json_line", "This line is not a JSON object.")
    try:
        return msgspec.json.decode(line.text, type=RawLine)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _BadLineError("invalid_json_line", f"This line is not parseable as valid JSON: {error}.") from error


def _check_json(text: bytes) -> None:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _BadLineError("invalid_json_line", f"This line is not parseable as valid JSON: {error}.") from error


def _checked_id(custom_id: Any) -> str:
    if custom_id is None:
        raise _BadLineError("missing_required_parameter", "'custom_id' is missing.", "custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        message = f"'custom_id' must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters."
        raise _BadLineError("invalid_custom_id", message, "custom_id")
    return custom_id


def _remember(custom_id: str, seen: set[bytes]) -> None:
    """Digests, since fifty thousand ids may be long."""
    digest = hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if digest in seen:
        message = "An earlier line of this file has the same 'custom_id'; only the first of them is run."
        raise _BadLineError("duplicate_custom_id", message, "custom_id")
    seen.add(digest)


def _check_envelope(raw: RawLine, endpoint: str) -> None:
    if raw.method is None:
        raise _BadLineError("missing_required_parameter", "'method' is missing.", "method")
    if raw.method != "POST":
        raise _BadLineError("invalid_method", "'method' must be POST.", "method")
    if raw.url is None:
        raise _BadLineError("missing_required_parameter", "'url' is missing.", "url")
    if raw.url != endpoint:
        raise _BadLineError("invalid_url", f"'url' must be {endpoint}, the endpoint of the batch.", "url")
    body = bytes(raw.body).lstrip()
    if not body or body == b"null":
        raise _BadLineError("missing_required_parameter", "'body' is missing.", "body")
    if not body.startswith(b"{"):
        raise _BadLineError("invalid_body", "'body' must be an object.", "body")


def _planned(line: InputLine, body: msgspec.Raw, findings: Findings) -> PlannedLine:
    try:
        key, model = prompt_key(body), msgspec.json.decode(body, type=_NamedModel).model
    except (msgspec.DecodeError, RecursionError) as error:
        raise _BadLineError("invalid_json_line", f"This line is not parseable as valid JSON: {error}.") from error
    if isinstance(model, str) and len(findings.models) < 2:
        findings.models.add(model)
    return PlannedLine(line.offset, len(line.text), line.number, key)


def _leading_id(text: bytes) -> str | None:
    found = _LEADING_ID.match(text)
    try:
        return msgspec.json.decode(found[1], type=str) if found else None
    except msgspec.DecodeError:
        return None
