"""Chat completions: role first and once for each choice, then its parts, then an empty delta with the finish reason."""

from collections.abc import Iterator
from typing import Any

from api.relay.answers.parts import Content, Part, Reasoning, ToolCallArguments, ToolCallBegin, tool_call_id
from api.relay.answers.splitters import splitter_for
from api.relay.dialects.openai import CompletionsDialect, WholeChoice
from api.stream_view import StreamView
from worker.protocol.event import Delta, FinishReason


class ChatDialect(CompletionsDialect):
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(self, job_id: str, view: StreamView) -> None:
        super().__init__(job_id, view)
        self._choices = {index: ChatChoice(job_id, view, index) for index in range(view.num_choices)}
        self._opened: set[int] = set()

    def _chunk_choices(self, event: Delta) -> Iterator[dict[str, Any]]:
        choice = self._choices[event.choice]
        if event.choice not in self._opened:
            self._opened.add(event.choice)
            yield choice.chunk({"role": "assistant", "content": ""})
        for part in choice.parts(event):
            yield choice.chunk(choice.delta_of(part))
        if event.finish:
            yield choice.chunk({}, choice.finish_reason(event.finish))

    def _new_choice(self, index: int) -> WholeChoice:
        return WholeChatChoice(ChatChoice(self.job_id, self.view, index))


class ChatChoice:
    """Reads one choice's deltas."""

    def __init__(self, job_id: str, view: StreamView, index: int) -> None:
        self.index = index
        self.num_tool_calls = 0
        self._job_id = job_id
        self._splitter = splitter_for(view.answer)

    def parts(self, delta: Delta) -> Iterator[Part]:
        parts = self._splitter.feed(delta.text)
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
        return "tool_calls" if finish == "stop" and self.num_tool_calls else finish

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": finish}


class WholeChatChoice(WholeChoice):
    def __init__(self, choice: ChatChoice) -> None:
        self._choice = choice
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls: list[dict[str, Any]] = []
        self._finish: str | None = None

    def add(self, delta: Delta) -> None:
        for part in self._choice.parts(delta):
            self._add_part(part)
        if delta.finish:
            self._finish = self._choice.finish_reason(delta.finish)

    def shown(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self._tool_calls and not self._content else "".join(self._content),
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._tool_calls:
            message["tool_calls"] = self._tool_calls
        return {"index": self._choice.index, "message": message, "logprobs": None, "finish_reason": self._finish}

    def _add_part(self, part: Part) -> None:
        if isinstance(part, Content):
            self._content.append(part.text)
        elif isinstance(part, Reasoning):
            self._reasoning.append(part.text)
        elif isinstance(part, ToolCallBegin):
            self._tool_calls.append(self._choice.begun_call(part))
        else:
            self._tool_calls[part.index]["function"]["arguments"] += part.text
