"""What must be answered is answered, to the letter, by a model that would rather recite; what need not be, is not."""

from typing import Any

import pytest

from tests.api.http.client import CHAT, Json, answered, chat_body, error_of, post, streamed, text_of
from tests.api.http.reciter import Recital
from tests.stack import WebServer

ISAR = {"type": "object", "properties": {"river": {"const": "Isar"}}, "required": ["river"]}
TOOL = {"type": "function", "function": {"name": "rise", "parameters": ISAR}}
NOW = {"type": "function", "function": {"name": "now"}}
ARGUMENTS = '{"river":"Isar"}'
WRITTEN = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def tools_body(choice: Any, **more: Any) -> Json:
    return chat_body(num_tokens=60, tools=[TOOL, NOW], tool_choice=choice, parallel_tool_calls=False, **more)


def called(server: WebServer, body: Json) -> list[tuple[str, str]]:
    """The calls of the whole answer, which must have nothing else, and be those of the stream."""
    (choice,) = answered(server, CHAT, body)["choices"]
    message, stream = choice["message"], streamed(server, CHAT, body)
    assert (message["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert (stream.text(), stream.finish()) == ("", "tool_calls")
    deltas = [c["delta"].get("tool_calls", ()) for chunk in stream.chunks for c in chunk["choices"]]
    told = [function for calls in deltas for call in calls if (function := call["function"])]
    functions = [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    assert [(told[0]["name"], "".join(function["arguments"] for function in told))] == functions
    return functions


class TestTools:
    def test_auto_forces_no_call(self, server: WebServer, recital: Recital) -> None:
        for choice in ("auto", None):
            whole = answered(server, CHAT, tools_body(choice, max_tokens=5))
            assert text_of(whole) == recital.text(whole["usage"]["prompt_tokens"], 5)
            assert "tool_calls" not in whole["choices"][0]["message"]

    def test_none_never_calls_whatever_the_answer_looks_like(self, server: WebServer) -> None:
        body = tools_body("none", guided_choice=[WRITTEN])
        assert text_of(answered(server, CHAT, body)) == streamed(server, CHAT, body).text() == WRITTEN
        assert streamed(server, CHAT, body).finish() == "stop"

    def test_required_answers_with_a_call_and_no_text(self, server: WebServer) -> None:
        ((name, arguments),) = called(server, tools_body("required"))
        assert arguments.replace(" ", "") == {"rise": ARGUMENTS, "now": "{}"}[name]

    @pytest.mark.parametrize(("name", "arguments"), [("rise", ARGUMENTS), ("now", "{}")])
    def test_a_named_function_is_the_one_that_is_called(self, server: WebServer, name: str, arguments: str) -> None:
        ((called_name, written),) = called(server, tools_body({"type": "function", "function": {"name": name}}))
        assert (called_name, written.replace(" ", "")) == (name, arguments)

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"tool_choice": {"type": "function", "function": {"name": "rises"}}}, "tool_choice"),
            ({"tools": None, "tool_choice": "required"}, "tool_choice"),
            ({"tools": [], "tool_choice": {"type": "function", "function": {"name": "rise"}}}, "tool_choice"),
            ({"tool_choice": "always"}, "tool_choice"),
            ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
            ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ],
    )
    def test_what_names_no_function_is_refused(self, server: WebServer, fields: Json, param: str) -> None:
        for stream in (False, True):
            response = post(server, CHAT, tools_body("auto") | fields | {"stream": stream})
            assert (response.status_code, error_of(response)["param"]) == (400, param)


class TestAResponseFormat:
    @pytest.mark.parametrize(
        ("schema", "text"),
        [
            ({"const": {"a": ["é🐦", None]}}, '{"a":["é🐦",null]}'),
            ({**ISAR, "additionalProperties": False}, ARGUMENTS),
            ({"enum": ["only this"]}, '"only this"'),
        ],
    )
    def test_is_held_to_in_every_choice_and_stream(self, server: WebServer, schema: Json, text: str) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
        body = chat_body(num_tokens=40, n=2, response_format=form)
        whole, stream = answered(server, CHAT, body), streamed(server, CHAT, body)
        written = [text_of(whole, 0), text_of(whole, 1), stream.text(0), stream.text(1)]
        assert [each.replace(": ", ":").replace(", ", ",") for each in written] == [text] * 4
        assert [stream.finish(0), stream.finish(1)] == ["stop", "stop"]

    def test_of_text_changes_nothing(self, server: WebServer, recital: Recital) -> None:
        whole = answered(server, CHAT, chat_body(response_format={"type": "text"}))
        assert text_of(whole) == recital.text(whole["usage"]["prompt_tokens"], 4)

    @pytest.mark.parametrize(
        "form",
        [
            {"type": "xml"},
            {"type": "json_schema"},
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "text"}, "strict": True}},
            {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
        ],
    )
    def test_that_cannot_be_followed_is_refused_by_name(self, server: WebServer, form: Json) -> None:
        for stream in (False, True):
            response = post(server, CHAT, chat_body(response_format=form, stream=stream))
            assert response.status_code == 400
            assert error_of(response)["param"].startswith("response_format")
