"""Given Vercel's AI SDK, text, objects and an agent with one function work against this server."""

from typing import Any

from tests.api.http.reciter import Recital
from tests.conformance.rivers import ANSWER, NUM, RESULT
from tests.conformance.scripts import seen_by_node


def test_the_ai_sdk_sees_what_it_expects(base_url: str, recital: Recital) -> None:
    seen: dict[str, Any] = seen_by_node("ai_sdk.mjs", base_url)
    num_prompt_tokens, *completion = seen.pop("completion")
    assert completion == [recital.text(num_prompt_tokens, NUM), "length"]
    pieces = seen.pop("pieces")
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 1
    steps = seen.pop("steps")
    assert seen.pop("streamedSteps") == steps
    called, answered = steps
    assert called.pop("tokens")[1] > 0
    assert called == {
        "text": "",
        "finishReason": "tool-calls",
        "calls": [["riseOf", {"river": "Isar"}]],
        "results": [RESULT],
    }
    assert answered["text"] == recital.text(*answered["tokens"])
    assert (answered["calls"], answered["results"]) == ([], [])
    assert seen == {
        "whole": [ANSWER, "length", NUM],
        "streamed": [ANSWER, "length", NUM],
        "object": {"name": "Isar", "isLong": True},
        "error": [404, "The model 'gpt-7' does not exist or you do not have access to it.", False],
    }
