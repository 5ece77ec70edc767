"""Chat completions: all roles first, then each choice's parts, then an empty delta with its finish reason."""

from collections.abc import Iterator
from typing import Any

from api.relay.answers.parts import Content, Part, Reasoning, ToolCallArguments, ToolCallBegin, tool_call_id
from api.relay.answers.splitters import splitter_for
from api.relay.dialects.logprobs import chat_logprobs
from api.relay.dialects.openai import CompletionsDialect, WholeChoice
from api.relay.dialects.token_places import PlacedToken, TokenPlaces
from api.stream_view import StreamView
from worker.protocol.event import Delta, FinishReason


class ChatDialect(CompletionsDialect):
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(self, job_id: str, view: StreamView) -> None:
        super().__init__(job_id, view)
        self._choices = [ChatChoice(job_id, view, index) for index in range(view.num_choices)]
        self._has_begun = False

    def _chunk_choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        if not self._has_begun:
            self._has_begun = True
            # In order, whichever speaks first: SDKs collect choices in the order in which they first appear.
            for choice in self._choices:
                yield choice.chunk({"role": "assistant", "content": ""})
        yield from self._choices[event.choice].chunks(event)

    @property
    def num_reasoning_tokens(self) -> int:
        return sum(choice.num_reasoning_tokens for choice in self._choices)

    def _new_choice(self, index: int) -> WholeChoice:
        return WholeChatChoice(index, self.view.tells_logprobs)


class ChatChoice:
    """Reads one choice's deltas."""

    def __init__(self, job_id: str, view: StreamView, index: int) -> None:
        self.index = index
        self.num_tool_calls = 0
        self.num_reasoning_tokens = 0
        self._job_id = job_id
        self._is_legacy = view.answer.is_legacy
        self._splitter = splitter_for(view.answer)
        self._places = TokenPlaces()
        self._untold: list[PlacedToken] = []

    def chunks(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """Logprobs go with the next chunk there is: what the parts leave out of the text, marks of calls say, too."""
        self._untold += self._places.feed(delta.logprobs, delta.text, delta.finish)
        for part in self.parts(delta):
            yield self.chunk(self.delta_of(part))
        if delta.finish:
            yield self.chunk({}, self.finish_reason(delta.finish))

    def parts(self, delta: Delta) -> Iterator[Part]:
        was_thinking = self._splitter.is_thinking
        parts = self._splitter.feed(delta.text)
        if was_thinking or self._splitter.is_thinking:
            self.num_reasoning_tokens += len(delta.token_ids)
        if delta.finish:
            parts += self._splitter.close()
        for part in parts:
            if isinstance(part, ToolCallBegin):
                self.num_tool_calls += 1
            yield part

    def delta_of(self, part: Part) -> dict[str, Any]:
        if isinstance(part, Content):
            return {"content": part.text}
        if isinstance(part, Reasoning):
            return {"reasoning_content": part.text}
        if self._is_legacy:
            begun = (
                {"name": part.name, "arguments": ""} if isinstance(part, ToolCallBegin) else {"arguments": part.text}
            )
            return {"function_call": begun}
        if isinstance(part, ToolCallArguments):
            return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}
        return {"tool_calls": [{"index": part.index} | self.begun_call(part)]}

    def begun_call(self, part: ToolCallBegin) -> dict[str, Any]:
        return {
            "id": tool_call_id(self._job_id, self.index, part.index),
            "type": "function",
            "function": {"name": part.name, "arguments": ""},
        }

    def finish_reason(self, finish: FinishReason) -> str:
        if finish != "stop" or not self.num_tool_calls:
            return finish
        return "function_call" if self._is_legacy else "tool_calls"

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        logprobs = chat_logprobs(self._untold) if self._untold else None
        self._untold = []
        return {"index": self.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class WholeChatChoice(WholeChoice):
    def __init__(self, index: int, tells_logprobs: bool) -> None:
        self._index = index
        self._content = ""
        self._reasoning = ""
        self._tool_calls: list[dict[str, Any]] = []
        self._function_call: dict[str, str] = {}
        self._logprobs = chat_logprobs([]) if tells_logprobs else None
        self._finish: str | None = None

    def add(self, piece: dict[str, Any]) -> None:
        delta = piece["delta"]
        self._content += delta.get("content", "")
        self._reasoning += delta.get("reasoning_content", "")
        for name, text in delta.get("function_call", {}).items():
            self._function_call[name] = self._function_call.get(name, "") + text
        for call in delta.get("tool_calls", ()):
            self._add_call(call)
        if self._logprobs is not None and piece["logprobs"] is not None:
            self._logprobs["content"] += piece["logprobs"]["content"]
        self._finish = piece["finish_reason"]

    def shown(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self._content or (None if self._tool_calls or self._function_call else ""),
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._tool_calls:
            message["tool_calls"] = self._tool_calls
        if self._function_call:
            message["function_call"] = self._function_call
        return {"index": self._index, "message": message, "logprobs": self._logprobs, "finish_reason": self._finish}

    def _add_call(self, call: dict[str, Any]) -> None:
        if "id" in call:
            function = dict(call["function"])
            self._tool_calls.append({"id": call["id"], "type": call["type"], "function": function})
        else:
            self._tool_calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
