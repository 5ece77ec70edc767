"""The output items of a response while they grow, and the events that tell of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from api.relay.dialects.interface import Chunk

Item = dict[str, Any]
Logprobs = list[dict[str, Any]]


class OutputItem(ABC):
    """One item: `opening`, any number of `grow`, then `closing`. Events carry no sequence numbers yet."""

    def __init__(self, item_id: str, index: int) -> None:
        self._id = item_id
        self._index = index
        self._pieces: list[str] = []
        self._logprobs: Logprobs = []
        self._status = "in_progress"

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def opening(self) -> Iterator[Chunk]:
        yield self._item_event("response.output_item.added", self._empty())

    def grow(self, text: str, logprobs: Logprobs) -> Chunk:
        self._pieces.append(text)
        self._logprobs += logprobs
        return self._grown(text, logprobs)

    def closing(self, *, is_whole: bool) -> Iterator[Chunk]:
        self._status = "completed" if is_whole else "incomplete"
        yield from self._done()
        yield self._item_event("response.output_item.done", self.shown())

    @abstractmethod
    def shown(self) -> Item:
        """The item as it is by now."""

    @abstractmethod
    def _empty(self) -> Item: ...

    @abstractmethod
    def _grown(self, text: str, logprobs: Logprobs) -> Chunk: ...

    @abstractmethod
    def _done(self) -> Iterator[Chunk]: ...

    def _item_event(self, kind: str, item: Item) -> Chunk:
        return {"type": kind, "output_index": self._index, "item": item}

    def _event(self, kind: str, **more: Any) -> Chunk:
        return {"type": kind, "item_id": self._id, "output_index": self._index} | more


class TextItem(OutputItem):
    """An item whose text is its one content part."""

    text_event: str

    def opening(self) -> Iterator[Chunk]:
        yield from super().opening()
        yield self._event("response.content_part.added", content_index=0, part=self._part("", []))

    def shown(self) -> Item:
        return self._item([self._part(self.text, self._logprobs)])

    def _empty(self) -> Item:
        return self._item([])

    def _grown(self, text: str, logprobs: Logprobs) -> Chunk:
        told = self._told(logprobs)
        return self._event(self.text_event + ".delta", content_index=0, delta=text, **told)

    def _done(self) -> Iterator[Chunk]:
        told = self._told(self._logprobs)
        yield self._event(self.text_event + ".done", content_index=0, text=self.text, **told)
        part = self._part(self.text, self._logprobs)
        yield self._event("response.content_part.done", content_index=0, part=part)

    @abstractmethod
    def _item(self, content: list[Item]) -> Item: ...

    @abstractmethod
    def _part(self, text: str, logprobs: Logprobs) -> Item: ...

    @abstractmethod
    def _told(self, logprobs: Logprobs) -> dict[str, Any]:
        """What an event about the text says of its tokens."""


class MessageItem(TextItem):
    text_event = "response.output_text"

    def _item(self, content: list[Item]) -> Item:
        return {"id": self._id, "type": "message", "status": self._status, "content": content, "role": "assistant"}

    def _part(self, text: str, logprobs: Logprobs) -> Item:
        return {"type": "output_text", "annotations": [], "logprobs": list(logprobs), "text": text}

    def _told(self, logprobs: Logprobs) -> dict[str, Any]:
        return {"logprobs": [_without_bytes(entry) for entry in logprobs]}


class ReasoningItem(TextItem):
    """Told in full: there is no summary of it."""

    text_event = "response.reasoning_text"

    def _item(self, content: list[Item]) -> Item:
        return {"id": self._id, "type": "reasoning", "summary": [], "content": content, "status": self._status}

    def _part(self, text: str, logprobs: Logprobs) -> Item:  # noqa: ARG002
        return {"type": "reasoning_text", "text": text}

    def _told(self, logprobs: Logprobs) -> dict[str, Any]:  # noqa: ARG002
        return {}


class CallItem(OutputItem):
    """A call of a function; its text is the arguments."""

    def __init__(self, item_id: str, index: int, call_id: str, name: str) -> None:
        super().__init__(item_id, index)
        self._call_id = call_id
        self._name = name

    def shown(self) -> Item:
        return self._item(self.text)

    def _empty(self) -> Item:
        return self._item("")

    def _grown(self, text: str, logprobs: Logprobs) -> Chunk:  # noqa: ARG002
        return self._event("response.function_call_arguments.delta", delta=text)

    def _done(self) -> Iterator[Chunk]:
        yield self._event("response.function_call_arguments.done", arguments=self.text)

    def _item(self, arguments: str) -> Item:
        return {
            "id": self._id,
            "type": "function_call",
            "status": self._status,
            "arguments": arguments,
            "call_id": self._call_id,
            "name": self._name,
        }


def _without_bytes(entry: dict[str, Any]) -> dict[str, Any]:
    """As the events have it: their tokens come without bytes."""
    top = [{"token": each["token"], "logprob": each["logprob"]} for each in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": top}
