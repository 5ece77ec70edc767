"""Text completions: text, then an empty text with the finish reason. An echo of the prompt comes first."""

from collections.abc import Iterator, Sequence
from typing import Any

from api.relay.dialects.logprobs import text_logprobs
from api.relay.dialects.openai import CompletionsDialect, WholeChoice
from api.relay.dialects.token_places import PlacedToken, TokenPlaces
from api.stream_view import StreamView
from worker.protocol.event import Delta, TokenLogprobs


class CompletionDialect(CompletionsDialect):
    chunk_object = "text_completion"
    whole_object = "text_completion"

    def __init__(self, job_id: str, view: StreamView) -> None:
        super().__init__(job_id, view)
        self._choices_each = view.num_choices // max(1, len(view.echo))
        echoes: list[str | None] = [text for text in view.echo for _ in range(self._choices_each)]
        echoes = echoes or [None] * view.num_choices
        self._choices = [TextChoice(i, echo, tells_logprobs=view.tells_logprobs) for i, echo in enumerate(echoes)]

    def _chunk_choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        if event.prompt_logprobs:  # told once, with the first of a prompt's choices, and shown by each of them
            for choice in self._choices[event.choice :][: self._choices_each]:
                yield from choice.open(event.prompt_logprobs)
        yield from self._choices[event.choice].chunks(event)

    def _new_choice(self, index: int) -> WholeChoice:
        return WholeTextChoice(index, self.view.tells_logprobs)


class TextChoice:
    """Reads one choice's deltas. `echo` is its prompt, where the answer begins with it."""

    def __init__(self, index: int, echo: str | None, *, tells_logprobs: bool) -> None:
        self._index = index
        self._echo = echo
        self._tells_logprobs = tells_logprobs
        self._places = TokenPlaces(len(echo or ""))
        self._is_open = echo is None
        self._held: list[Delta] = []  # until the prompt's logprobs are there

    def open(self, prompt_logprobs: Sequence[TokenLogprobs | None]) -> Iterator[dict[str, Any]]:
        """The prompt, and what came before its logprobs did."""
        self._is_open = True
        text = self._echo or ""
        yield self._shown(text, TokenPlaces().feed_prompt(prompt_logprobs, text) if prompt_logprobs else [])
        for delta in self._held:
            yield from self.chunks(delta)

    def chunks(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if not self._is_open and self._tells_logprobs:
            self._held.append(delta)
            return
        if not self._is_open:
            yield from self.open(())
        tokens = self._places.feed(delta.logprobs, delta.text, delta.finish)
        if delta.text or (tokens and not delta.finish):
            yield self._shown(delta.text, tokens)
            tokens = []
        if delta.finish:
            yield self._shown("", tokens, delta.finish)

    def _shown(self, text: str, tokens: Sequence[PlacedToken], finish: str | None = None) -> dict[str, Any]:
        logprobs = text_logprobs(tokens) if tokens else None
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": finish}


class WholeTextChoice(WholeChoice):
    def __init__(self, index: int, tells_logprobs: bool) -> None:
        self._texts: list[str] = []
        self._logprobs = text_logprobs([]) if tells_logprobs else None
        self._shown: dict[str, Any] = {"index": index}

    def add(self, piece: dict[str, Any]) -> None:
        self._texts.append(piece["text"])
        self._shown = piece
        if self._logprobs is not None and piece["logprobs"] is not None:
            for name, values in piece["logprobs"].items():
                self._logprobs[name] += values

    def shown(self) -> dict[str, Any]:
        return self._shown | {"text": "".join(self._texts), "logprobs": self._logprobs}
