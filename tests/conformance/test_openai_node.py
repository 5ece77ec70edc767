"""Given OpenAI's own SDK for Node.js, its helpers for schemas and functions work; the rest is tested with the API."""

from tests.conformance.rivers import ANSWER, NUM, QUESTION, RESULT
from tests.conformance.scripts import seen_by_node

ISAR = {"name": "Isar", "isLong": True}
ARGUMENTS = {"river": "Isar"}


def test_the_helpers_for_schemas_and_functions_see_what_they_expect(base_url: str) -> None:
    assert seen_by_node("openai_tools.mjs", base_url) == {
        "object": [ISAR, "stop"],
        "call": ["rise_of", ARGUMENTS, "tool_calls"],
        "streamedCall": [ARGUMENTS, ARGUMENTS],
        "run": [["user", QUESTION], ["assistant", "call"], ["tool", RESULT]],
        "response": [ANSWER, "incomplete", NUM],
        "streamedResponse": [ANSWER, ANSWER],
        "responseObject": ISAR,
        "responseCall": [["function_call", "rise_of", ARGUMENTS]],
    }
