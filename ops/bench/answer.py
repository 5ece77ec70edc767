"""From the bytes of an exchange to an answer: when each piece of text came, how many tokens there were."""

import bisect
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ops.bench.load_generator import Exchange

_CHUNKED = b"transfer-encoding: chunked"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `text_times_s`: when each piece of text came, in seconds from sending the request.

    With a `failure` nothing else counts. `is_counted`: the server said how many tokens it made; else every piece of
    text counts as one.
    """

    text_times_s: list[float] = []
    num_output_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    is_counted: bool = False
    failure: str = ""


def read_answer(exchange: Exchange) -> Answer:
    """Takes the bytes apart: HTTP, chunks of its transfer encoding, events, JSON."""
    if exchange.failure:
        return Answer(failure=exchange.failure)
    try:
        return _read_events(exchange)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Answer(failure=f"not an event stream: {type(error).__name__}: {error}")


def _read_events(exchange: Exchange) -> Answer:
    pieces = _pieces(exchange)
    status = next(pieces)[1].decode()
    if status != "200":
        return Answer(failure=f"HTTP {status}: {b''.join(data for _, data in pieces)[:300].decode(errors='replace')}")
    times: list[float] = []
    usage: dict[str, Any] = {}
    for time_s, event in _events(pieces):
        if event.get("error"):
            return Answer(failure=f"in the stream: {str(event['error'])[:200]}")
        usage = event.get("usage") or usage
        if any(_text(choice) for choice in event.get("choices") or ()):
            times.append(time_s - exchange.began_s)
    if not times:
        return Answer(failure="no text in the stream")
    details = usage.get("prompt_tokens_details") or {}
    return Answer(
        text_times_s=times,
        num_output_tokens=usage.get("completion_tokens", len(times)),
        num_prompt_tokens=usage.get("prompt_tokens", 0),
        num_cached_tokens=details.get("cached_tokens") or 0,
        is_counted="completion_tokens" in usage,
    )


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta") or {}
    return choice.get("text") or delta.get("content") or ""


def _events(pieces: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """The JSON events, each with the time at which its line was whole."""
    rest = b""
    for time_s, data in pieces:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            content = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and content != b"[DONE]":
                yield time_s, json.loads(content)


def _pieces(exchange: Exchange) -> Iterator[tuple[float, bytes]]:
    """First the status code, then the pieces of the body, each with the time of its last byte."""
    raw = b"".join(data for _, data in exchange.arrivals)
    ends, total = [], 0
    for _, data in exchange.arrivals:
        total += len(data)
        ends.append(total)

    def time_of(end: int) -> float:
        if end > total:
            raise ValueError(f"the connection ended after {total} bytes, within a chunk")
        return exchange.arrivals[bisect.bisect_left(ends, end)][0]

    head, separator, _ = raw.partition(b"\r\n\r\n")
    if not separator:
        raise ValueError(f"the connection ended after {len(raw)} bytes, within the HTTP head")
    place = len(head) + len(separator)
    yield time_of(place), head.split(b" ", 2)[1]
    if _CHUNKED not in head.lower():
        yield from _whole_arrivals(exchange, ends, place)
        return
    while (size := int(raw[place : raw.index(b"\r\n", place)].partition(b";")[0], 16)) > 0:
        begin = raw.index(b"\r\n", place) + 2
        yield time_of(begin + size), raw[begin : begin + size]
        place = begin + size + 2


def _whole_arrivals(exchange: Exchange, ends: list[int], place: int) -> Iterator[tuple[float, bytes]]:
    """A body without transfer encoding: what arrived is what was sent."""
    for (time_s, data), end in zip(exchange.arrivals, ends, strict=True):
        if end > place:
            yield time_s, data[max(0, place - (end - len(data))) :]
