"""The Responses API: typed, numbered events that open and close each item of the answer, and one that ends it."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import msgspec

from api.errors import ApiError
from api.relay.answers.parts import Content, Part, Reasoning, ToolCallBegin, tool_call_id
from api.relay.dialects.chat import ChatChoice
from api.relay.dialects.interface import Chunk, Framing
from api.relay.dialects.logprobs import chat_logprobs
from api.relay.dialects.openai import usage_of
from api.relay.dialects.response_items import CallItem, Logprobs, MessageItem, OutputItem, ReasoningItem
from api.relay.dialects.token_places import PlacedToken, TokenPlaces
from api.relay.outcomes import error_of
from api.stream_view import StreamView
from worker.protocol.event import Delta, Event, Terminal
from worker.protocol.job import RANDOM_HEX_DIGITS

LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesDialect:
    """See Dialect. A chunk's number is its sequence number plus one."""

    tells_bad_ends = True

    def __init__(self, job_id: str, view: StreamView) -> None:
        self.framing = Framing(event=_event, error=self._error, ping=b": ping\n", end=b"")
        self._job_id = job_id
        self._view = view
        self._numbers = count()
        self._status = "queued" if view.is_background else "in_progress"
        self._choice = ChatChoice(job_id, view, 0)  # reads the text as chat does
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._places = TokenPlaces()
        self._untold: list[PlacedToken] = []
        self._finish: str | None = None
        self._terminal: Terminal | None = None

    def opening(self) -> Iterator[Chunk]:
        yield self._numbered({"type": "response.created", "response": self.response()})
        yield self._numbered({"type": f"response.{self._status}", "response": self.response()})

    def chunks(self, event: Event) -> Iterator[Chunk]:
        changes = self._ended(event) if isinstance(event, Terminal) else self._added(event)
        return map(self._numbered, changes)

    def whole(self, events: Iterable[Event]) -> dict[str, Any]:
        """Also of a job that has not ended yet."""
        for event in events:
            for _ in self.chunks(event):
                pass
        return self.response()

    def response(self) -> dict[str, Any]:
        """The Response object as it is by now."""
        is_cut = self._status == "incomplete"
        return {
            "id": self._job_id,
            "object": "response",
            "created_at": self._view.created_s,
            "status": self._status,
            "completed_at": self._completed_at(),
            "error": self._failure() if self._status == "failed" else None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": self._view.model,
            "output": [item.shown() for item in self._items],
            "usage": self._usage() if self._status in ("completed", "incomplete") else None,
        } | self._view.shown

    def _added(self, delta: Delta) -> Iterator[Chunk]:
        if self._status == "queued":
            self._status = "in_progress"
            yield {"type": "response.in_progress", "response": self.response()}
        if self._view.is_warm_up:
            return
        self._untold += self._places.feed(delta.logprobs, delta.text, delta.finish)
        for part in self._choice.parts(delta):
            yield from self._part(part)
        if delta.finish:
            self._finish = delta.finish
            yield from self._finished()

    def _finished(self) -> Iterator[Chunk]:
        if not self._items:
            yield from self._opened(MessageItem(self._item_id("msg"), 0))
        if self._untold and isinstance(self._open, MessageItem):
            yield self._open.grow("", self._told())
        yield from self._closed()

    def _part(self, part: Part) -> Iterator[Chunk]:
        logprobs = self._told()
        if isinstance(part, ToolCallBegin):
            call_id = tool_call_id(self._job_id, 0, part.index)
            yield from self._opened(CallItem(self._item_id("fc"), len(self._items), call_id, part.name))
            return
        if isinstance(part, Content) and not isinstance(self._open, MessageItem):
            yield from self._opened(MessageItem(self._item_id("msg"), len(self._items)))
        elif isinstance(part, Reasoning) and not isinstance(self._open, ReasoningItem):
            yield from self._opened(ReasoningItem(self._item_id("rs"), len(self._items)))
        assert self._open is not None, "arguments follow their call"
        yield self._open.grow(part.text, logprobs)

    def _told(self) -> Logprobs:
        """Of the tokens since the last part. OpenAI's type has no null for the bytes of a token that no text shows."""
        tokens, self._untold = self._untold, []
        return [token | {"bytes": token["bytes"] or []} for token in chat_logprobs(tokens)["content"]]

    def _opened(self, item: OutputItem) -> Iterator[Chunk]:
        yield from self._closed(is_last=False)
        self._items.append(item)
        self._open = item
        yield from item.opening()

    def _closed(self, *, is_last: bool = True) -> Iterator[Chunk]:
        if self._open is not None:
            yield from self._open.closing(is_whole=not is_last or self._finish == "stop")
            self._open = None

    def _ended(self, terminal: Terminal) -> Iterator[Chunk]:
        yield from self._closed()  # where the job broke in the middle of it
        self._terminal = terminal
        if terminal.state == "succeeded":
            self._status = "incomplete" if self._finish == "length" else "completed"
        else:
            self._status = "cancelled" if terminal.state == "cancelled" else "failed"
        kind = f"response.{self._status}"
        # No event is called response.cancelled: the status tells it.
        yield {"type": kind if kind in LAST_EVENTS else "response.incomplete", "response": self.response()}

    def _completed_at(self) -> int | None:
        return self._terminal.ended_s or None if self._terminal and self._status == "completed" else None

    def _usage(self) -> dict[str, Any] | None:
        if self._terminal is None:
            return None
        usage = usage_of(self._terminal, self._choice.num_reasoning_tokens)
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {
                "cache_write_tokens": 0,
                "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            },
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": usage["completion_tokens_details"],
            "total_tokens": usage["total_tokens"],
        }

    def _failure(self) -> dict[str, Any] | None:
        error = error_of(self._terminal) if self._terminal else None
        if error is None:
            return None
        # These two are the codes that OpenAI knows for it.
        return {"code": "invalid_prompt" if error.status < 500 else "server_error", "message": error.message}

    def _item_id(self, prefix: str) -> str:
        """Names the response, so that a reference to an item can be resolved."""
        return f"{prefix}_{self._job_id[-RANDOM_HEX_DIGITS:]}-{len(self._items)}"

    def _numbered(self, chunk: Chunk) -> Chunk:
        return {"type": chunk["type"], "sequence_number": next(self._numbers)} | chunk

    def _error(self, error: ApiError) -> bytes:
        told = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return _event(self._numbered(told))


def _event(chunk: Chunk) -> bytes:
    kind: str = chunk["type"]
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(chunk) + b"\n\n"
