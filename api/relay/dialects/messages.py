"""Anthropic's Messages: typed events that open and close each block of the answer."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from api.relay.answers.parts import Content, Part, Reasoning, ToolCallBegin, tool_call_id
from api.relay.answers.splitters import splitter_for
from api.relay.dialects.interface import Chunk, Framing
from api.stream_view import StreamView
from worker.protocol.event import Delta, Event, Terminal


def _event(chunk: Chunk) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (chunk["type"].encode(), msgspec.json.encode(chunk))


FRAMING = Framing(
    event=_event,
    error=lambda error: _event(error.anthropic_body()),
    ping=_event({"type": "ping"}),
    end=b"",
)


class MessagesDialect:
    """See Dialect. The view's `shown` has the prompt's tokens, which the first event tells."""

    framing = FRAMING
    tells_bad_ends = False

    def __init__(self, job_id: str, view: StreamView) -> None:
        self._job_id = job_id
        self._view = view
        self._splitter = splitter_for(view.answer)
        self._num_blocks = 0
        self._open: str | None = None  # the type of the block in progress
        self._has_called = False
        self._stop: dict[str, str | None] = {"stop_reason": None, "stop_sequence": None}

    def opening(self) -> Iterator[Chunk]:
        usage = {"input_tokens": self._view.shown["input_tokens"], "output_tokens": 0}
        yield {"type": "message_start", "message": self._message([], usage)}

    def chunks(self, event: Event) -> Iterator[Chunk]:
        if isinstance(event, Delta):
            yield from self._added(event)
        elif event.state == "succeeded":
            yield {"type": "message_delta", "delta": self._stop, "usage": usage_of(event)}
            yield {"type": "message_stop"}

    def whole(self, events: Iterable[Event]) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        usage: dict[str, int] = {}
        for event in events:
            for chunk in self.chunks(event):
                if chunk["type"] == "content_block_start":
                    blocks.append(dict(chunk["content_block"]))
                elif chunk["type"] == "content_block_delta":
                    _grow(blocks[-1], chunk["delta"])
            if isinstance(event, Terminal):
                usage = usage_of(event)
        return self._message([_finished(block) for block in blocks], usage)

    def _message(self, content: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self._job_id,
            "type": "message",
            "role": "assistant",
            "model": self._view.model,
            "content": content,
            **self._stop,
            "usage": usage,
        }

    def _added(self, delta: Delta) -> Iterator[Chunk]:
        parts = self._splitter.feed(delta.text)
        if delta.finish:
            parts += self._splitter.close()
        for part in parts:
            yield from self._part(part)
        if delta.finish:
            yield from self._closed()
            self._stop = self._stopped(delta)

    def _part(self, part: Part) -> Iterator[Chunk]:
        if isinstance(part, ToolCallBegin):
            self._has_called = True
            call_id = tool_call_id(self._job_id, 0, part.index).replace("call_", "toolu_", 1)
            yield from self._opened({"type": "tool_use", "id": call_id, "name": part.name, "input": {}})
        elif isinstance(part, Content):
            if self._open != "text":
                yield from self._opened({"type": "text", "text": ""})
            yield self._grown({"type": "text_delta", "text": part.text})
        elif isinstance(part, Reasoning):
            if self._open != "thinking":
                yield from self._opened({"type": "thinking", "thinking": "", "signature": ""})
            yield self._grown({"type": "thinking_delta", "thinking": part.text})
        else:
            yield self._grown({"type": "input_json_delta", "partial_json": part.text})

    def _opened(self, block: dict[str, Any]) -> Iterator[Chunk]:
        yield from self._closed()
        self._open = block["type"]
        yield {"type": "content_block_start", "index": self._num_blocks, "content_block": block}
        self._num_blocks += 1

    def _grown(self, delta: dict[str, str]) -> Chunk:
        return {"type": "content_block_delta", "index": self._num_blocks - 1, "delta": delta}

    def _closed(self) -> Iterator[Chunk]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._num_blocks - 1}

    def _stopped(self, delta: Delta) -> dict[str, str | None]:
        if delta.finish == "length":
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if isinstance(delta.matched_stop, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": delta.matched_stop}
        return {"stop_reason": "tool_use" if self._has_called else "end_turn", "stop_sequence": None}


def usage_of(terminal: Terminal) -> dict[str, int]:
    """Anthropic counts what was found in the cache apart from the other input."""
    return {
        "input_tokens": terminal.num_prompt_tokens - terminal.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": terminal.num_cached_tokens,
        "output_tokens": terminal.num_completion_tokens,
    }


def _grow(block: dict[str, Any], delta: dict[str, str]) -> None:
    for name in ("text", "thinking", "partial_json"):
        if name in delta:
            block[name] = block.get(name, "") + delta[name]


def _finished(block: dict[str, Any]) -> dict[str, Any]:
    """A call cut off by the limit has no whole JSON: its input is then empty."""
    arguments = block.pop("partial_json", None)
    if arguments is not None:
        try:
            block["input"] = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            block["input"] = {}
    return block
