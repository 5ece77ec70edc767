"""Text completions: text, then an empty text with the finish reason."""

from collections.abc import Iterator
from typing import Any

from api.relay.dialects.openai import CompletionsDialect, WholeChoice
from worker.protocol.event import Delta


class CompletionDialect(CompletionsDialect):
    chunk_object = "text_completion"
    whole_object = "text_completion"

    def _chunk_choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        if event.text:
            yield _shown(event.choice, event.text, None)
        if event.finish:
            yield _shown(event.choice, "", event.finish)

    def _new_choice(self, index: int) -> WholeChoice:
        return WholeTextChoice(index)


class WholeTextChoice(WholeChoice):
    def __init__(self, index: int) -> None:
        self._index = index
        self._texts: list[str] = []
        self._finish: str | None = None

    def add(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self._finish = delta.finish

    def shown(self) -> dict[str, Any]:
        return _shown(self._index, "".join(self._texts), self._finish)


def _shown(index: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
