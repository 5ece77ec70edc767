"""What chat and text completions share: the envelope, the usage and the framing."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from api.errors import ApiError
from api.relay.dialects.interface import Chunk, Framing
from api.stream_view import StreamView
from worker.protocol.event import Delta, Event, Terminal


def _event(chunk: Chunk) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _error(error: ApiError) -> bytes:
    return _event(error.body())


FRAMING = Framing(
    event=_event,
    error=_error,
    # One newline: a comment followed by a blank line is an (empty) event to several SDKs.
    ping=b": ping\n",
    end=b"data: [DONE]\n\n",
)


def usage_of(terminal: Terminal, num_reasoning_tokens: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": terminal.num_prompt_tokens,
        "completion_tokens": terminal.num_completion_tokens,
        "total_tokens": terminal.num_prompt_tokens + terminal.num_completion_tokens,
        "prompt_tokens_details": {"cached_tokens": terminal.num_cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": num_reasoning_tokens},
    }


class CompletionsDialect(ABC):
    """See Dialect. Choices are told apart by their index; usage comes last and only when asked for."""

    framing = FRAMING
    tells_bad_ends = False
    chunk_object: str
    whole_object: str

    def __init__(self, job_id: str, view: StreamView) -> None:
        self.job_id = job_id
        self.view = view

    @property
    def num_reasoning_tokens(self) -> int:
        """Of all choices so far."""
        return 0

    def opening(self) -> Iterator[Chunk]:
        return iter(())

    def chunks(self, event: Event) -> Iterator[Chunk]:
        envelope, asked = self._envelope(self.chunk_object), self.view.include_usage
        if isinstance(event, Delta):
            for choice in self._chunk_choices(event):
                yield envelope | {"choices": [choice]} | ({"usage": None} if asked else {})
        elif event.state == "succeeded" and asked:
            yield envelope | {"choices": [], "usage": usage_of(event, self.num_reasoning_tokens)}

    def whole(self, events: Iterable[Event]) -> dict[str, Any]:
        """What the chunks of a stream would add up to."""
        choices, usage = [self._new_choice(index) for index in range(self.view.num_choices)], {}
        for event in events:
            if isinstance(event, Terminal):
                usage = usage_of(event, self.num_reasoning_tokens)
                continue
            for piece in self._chunk_choices(event):
                choices[piece["index"]].add(piece)
        shown = [choice.shown() for choice in choices]
        return self._envelope(self.whole_object) | {"choices": shown, "usage": usage}

    def _envelope(self, object_name: str) -> dict[str, Any]:
        envelope = {
            "id": self.job_id,
            "object": object_name,
            "created": self.view.created_s,
            "model": self.view.model,
        }
        return envelope | ({"service_tier": self.view.service_tier} if self.view.service_tier else {})

    @abstractmethod
    def _chunk_choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        """The choices this event adds to, each as it stands in a chunk of its own."""

    @abstractmethod
    def _new_choice(self, index: int) -> "WholeChoice": ...


class WholeChoice(ABC):
    """A choice of a whole answer, built up from what chunks say of it."""

    @abstractmethod
    def add(self, piece: dict[str, Any]) -> None: ...

    @abstractmethod
    def shown(self) -> dict[str, Any]: ...
