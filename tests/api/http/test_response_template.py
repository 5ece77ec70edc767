"""A model whose tokenizer says how its answers are to be read: thoughts, text and calls, streamed and whole alike."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.http import responses_client as responses
from tests.api.http.client import CHAT, Json, answered, chat_body, post, streamed, text_of
from tests.api.http.reciter import CONTEXT, RECITER, Recital
from tests.models import TOKENIZER_FILES
from tests.stack import WebServer

KM = {"type": "object", "properties": {"river": {"type": "string"}, "km": {"type": "integer"}}}
RISE = {"name": "rise", "parameters": KM}
ARGUMENTS = '{"river": "Isar", "km": 295}'
TEMPLATE = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<issue_start>", "close": "<issue_closed>"},
        "tool_calls": {
            "open_pattern": r"<jupyter_code>(?P<name>\w+)",
            "close": "<jupyter_output>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</(?P=key)>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {},
    },
}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}{# tools #}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Path:
    """As the reciting model's, but for the templates."""
    folder = tmp_path_factory.mktemp("templated")
    for name in TOKENIZER_FILES:
        shutil.copy(smollm2_folder / name, folder / name)
    (folder / "config.json").write_text(json.dumps({"n_positions": CONTEXT, "vocab_size": 49152}))
    config = json.loads((folder / "tokenizer_config.json").read_text()) | {"response_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


@pytest.fixture
def web(folder: Path, new_web: Callable[..., WebServer]) -> WebServer:
    return new_web(HEADRACE_MODEL=str(folder), HEADRACE_MODEL_NAME=RECITER)


def question(web: WebServer, recital: Recital) -> str:
    """So long that the model recites the fields after it."""
    messages = [{"role": "user", "content": ""}]
    counted = post(web, f"{CHAT}/input_tokens", {"model": RECITER, "messages": messages}).json()["input_tokens"]
    return " a" * (len(recital.prompt("fields")) - int(counted))


def test_thoughts_text_and_calls_are_told_apart(web: WebServer, recital: Recital) -> None:
    asked = question(web, recital)
    body = chat_body(asked, 60, tools=[{"type": "function", "function": RISE}])
    whole, stream = answered(web, CHAT, body), streamed(web, CHAT, body)
    (choice,) = whole["choices"]
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("Long?", "Let me see.Done.")
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "rise", "arguments": ARGUMENTS}]
    assert choice["finish_reason"] == "tool_calls"
    deltas = [chunk["choices"][0]["delta"] for chunk in stream.chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Long?"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["function"].get("name") for call in calls] == ["rise", None]
    assert "".join(call["function"]["arguments"] for call in calls) == ARGUMENTS
    assert (stream.text(), stream.finish()) == ("Let me see.Done.", "tool_calls")
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5  # the marks too
    unasked = text_of(answered(web, CHAT, body | {"tools": None}))
    assert unasked == "Let me see.rise<river>Isar</river><km>295</km> Done."  # nothing to call: the words are content

    body = responses.body(asked, 60, tools=[{"type": "function", **RISE}])
    whole, events = responses.created(web, body), responses.streamed(web, body)
    assert parts(whole) == parts(events[-1]["response"]) == ["Long?", "Let me see.", f"rise {ARGUMENTS}", "Done."]


def parts(response: Json) -> list[str]:
    """What each item of the output says."""
    return [
        f"{item['name']} {item['arguments']}" if item["type"] == "function_call" else item["content"][0]["text"]
        for item in response["output"]
    ]
