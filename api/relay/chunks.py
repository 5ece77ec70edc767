"""Events to OpenAI's chunk objects.

Chunks and their numbers are a pure function of the job's events from the first, whatever the timing: any process
gives the same chunks, so a client can go on at another one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from worker.protocol.event import Delta, Event, Terminal

Chunk = dict[str, Any]


class StreamView(msgspec.Struct, frozen=True):
    """How a job is shown to its client; kept with the job so that any process can relay it."""

    endpoint: str  # chat.completions or completions
    model: str
    created_s: int
    include_usage: bool = False
    is_stream: bool = False
    resume_grace_ms: int = 0  # 0: a client that leaves cancels the job
    request_digest: str = ""  # tells a repeat under an idempotency key from another request


class ChunkMaker(Protocol):
    def chunks(self, event: Event) -> Iterator[Chunk]:
        """The chunks this event adds; a Terminal that is no success adds none."""
        ...


def chunk_maker(job_id: str, view: StreamView) -> ChunkMaker:
    return ChatChunks(job_id, view) if view.endpoint == "chat.completions" else CompletionChunks(job_id, view)


def usage_of(terminal: Terminal) -> dict[str, Any]:
    return {
        "prompt_tokens": terminal.num_prompt_tokens,
        "completion_tokens": terminal.num_completion_tokens,
        "total_tokens": terminal.num_prompt_tokens + terminal.num_completion_tokens,
        "prompt_tokens_details": {"cached_tokens": terminal.num_cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


class _Chunks(ABC):
    """What both dialects share: the envelope, and the usage chunk at the end."""

    object_name: str

    def __init__(self, job_id: str, view: StreamView) -> None:
        self._envelope = {
            "id": job_id,
            "object": self.object_name,
            "created": view.created_s,
            "model": view.model,
        }
        self._include_usage = view.include_usage

    def chunks(self, event: Event) -> Iterator[Chunk]:
        if isinstance(event, Delta):
            for choice in self._choices(event):
                yield self._envelope | {"choices": [choice]} | ({"usage": None} if self._include_usage else {})
        elif event.state == "succeeded" and self._include_usage:
            yield self._envelope | {"choices": [], "usage": usage_of(event)}

    @abstractmethod
    def _choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        """The choices this event adds to, each as it stands in a chunk of its own."""


class ChatChunks(_Chunks):
    """Role first and once for each choice, then text, then an empty delta with the finish reason."""

    object_name = "chat.completion.chunk"

    def __init__(self, job_id: str, view: StreamView) -> None:
        super().__init__(job_id, view)
        self._opened: set[int] = set()

    def _choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        if event.choice not in self._opened:
            self._opened.add(event.choice)
            yield self._choice(event.choice, {"role": "assistant", "content": ""}, None)
        if event.text:
            yield self._choice(event.choice, {"content": event.text}, None)
        if event.finish:
            yield self._choice(event.choice, {}, event.finish)

    @staticmethod
    def _choice(index: int, delta: dict[str, str], finish: str | None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


class CompletionChunks(_Chunks):
    """Text, then an empty text with the finish reason."""

    object_name = "text_completion"

    def _choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        if event.text:
            yield {"index": event.choice, "text": event.text, "logprobs": None, "finish_reason": None}
        if event.finish:
            yield {"index": event.choice, "text": "", "logprobs": None, "finish_reason": event.finish}
