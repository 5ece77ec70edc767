"""Given tools that still use version 2 of OpenAI's SDK, in an environment of their own, they work too."""

from tests.api.http.reciter import Recital
from tests.conformance.rivers import ANSWER, ISAR, NUM, RESULT
from tests.conformance.scripts import seen_by_openai_2

RIVER = ISAR.model_dump()
CALL = ["rise_of", {"river": "Isar"}]


def test_instructor_gets_objects_by_calls_and_by_schemas(base_url: str) -> None:
    assert seen_by_openai_2("seen_by_instructor.py", base_url) == {
        "tool_call": [RIVER, "tool_calls", True],
        "tool_call, partial": RIVER,
        "json_schema_mode": [RIVER, "stop", True],
        "json_schema_mode, partial": RIVER,
        "responses": RIVER,
    }


def test_llama_index_chats_calls_and_runs_an_agent(base_url: str, recital: Recital) -> None:
    seen = seen_by_openai_2("seen_by_llama_index.py", base_url)
    calls, num_prompt_tokens, answer = seen.pop("agent")
    assert calls == [[*CALL, RESULT]]
    assert recital.text(num_prompt_tokens, 60).startswith(answer)
    assert len(answer) > 0
    num_mill = len(recital.tokenizer.encode("The mill.", add_special_tokens=False).ids)
    completion = recital.text(num_mill, 3)
    assert seen == {
        "chat": [ANSWER, "length", NUM],
        "stream": ANSWER,
        "completion": completion,
        "streamed completion": completion,
        "call": [CALL],
        "streamed call": [CALL],
        "object by a function": RIVER,
        "object by a schema": RIVER,
    }
