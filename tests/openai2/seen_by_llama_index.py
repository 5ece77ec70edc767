"""Drives a server with LlamaIndex and prints what came of it as one JSON object. Arguments: base URL, model."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any, Literal

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

BASE_URL, MODEL = sys.argv[1:]
QUESTION = "Where does the river rise?"


class River(BaseModel):
    """A river."""

    name: Literal["Isar"]
    is_long: Literal[True]


def rise_of(river: Literal["Isar"]) -> str:
    """Where a river rises."""
    return "In the Alps." if river == "Isar" else "Elsewhere."


TOOL = FunctionTool.from_defaults(rise_of)


def model(num_tokens: int, **more: Any) -> OpenAILike:
    settings = {"model": MODEL, "api_base": BASE_URL, "api_key": "none", "context_window": 384, "temperature": 0}
    chat = {"is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(**{**settings, **chat, "max_tokens": num_tokens, "max_retries": 0, **more})


async def ask_agent() -> list[Any]:
    """An agent that must call its function first."""
    agent = FunctionAgent(llm=model(60), tools=[TOOL], initial_tool_choice="rise_of", streaming=False)
    output = await agent.run(QUESTION)
    calls = [[call.tool_name, call.tool_kwargs, call.tool_output.content] for call in output.tool_calls]
    return [calls, output.raw["usage"]["prompt_tokens"], output.response.content]


def main() -> Iterator[tuple[str, Any]]:
    """What was seen, by what was tried."""
    question = [ChatMessage(role="user", content=QUESTION)]
    whole = model(11).chat(question)
    yield "chat", [whole.message.content, whole.raw.choices[0].finish_reason, whole.raw.usage.completion_tokens]
    yield "stream", "".join(piece.delta or "" for piece in model(11).stream_chat(question))
    text = model(3, is_chat_model=False)
    yield "completion", text.complete("The mill.").text
    yield "streamed completion", "".join(piece.delta or "" for piece in text.stream_complete("The mill."))
    asked = {"user_msg": QUESTION, "tool_required": True, "allow_parallel_tool_calls": False}
    called = model(60).chat_with_tools([TOOL], **asked)
    yield "call", [[call.tool_name, call.tool_kwargs] for call in model(60).get_tool_calls_from_response(called)]
    *_, last = model(60).stream_chat_with_tools([TOOL], **asked)
    yield "streamed call", [[call.tool_name, call.tool_kwargs] for call in model(60).get_tool_calls_from_response(last)]
    prompt = PromptTemplate(QUESTION)
    yield "object by a function", model(60).structured_predict(River, prompt).model_dump()
    structured = model(60, should_use_structured_outputs=True)
    yield "object by a schema", structured.structured_predict(River, prompt).model_dump()
    yield "agent", asyncio.run(ask_agent())


print(json.dumps(dict(main())))
