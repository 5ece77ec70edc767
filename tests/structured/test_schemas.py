"""Given any of many schemas, a small model that samples answers within it."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from openai import OpenAI
from openai.types.chat import ChatCompletion

from tests.structured.schemas import SCHEMAS, Schema, record

MODEL = "smollm2-135m"
MAX_TOKENS = 72
FORMATS = FormatChecker(["date", "uuid", "ipv4"])


def answer(client: OpenAI, schema: Schema, seed: int, n: int = 1) -> ChatCompletion:
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    completion: ChatCompletion = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Make up an example."}],
        response_format=form,
        temperature=1,
        max_tokens=MAX_TOKENS,
        seed=seed,
        n=n,
    )
    return completion


@pytest.fixture(scope="module")
def answers(client: OpenAI) -> dict[str, ChatCompletion]:
    """All schemas at once."""
    with ThreadPoolExecutor(len(SCHEMAS)) as pool:
        asked = {name: pool.submit(answer, client, schema, i) for i, (name, schema) in enumerate(SCHEMAS.items())}
        return {name: each.result() for name, each in asked.items()}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_finished_answer_is_valid(answers: dict[str, ChatCompletion], name: str) -> None:
    choice, usage = answers[name].choices[0], answers[name].usage
    if choice.finish_reason == "length":
        assert usage is not None
        assert usage.completion_tokens == MAX_TOKENS
        return
    assert choice.finish_reason == "stop"
    Draft202012Validator(SCHEMAS[name], format_checker=FORMATS).validate(json.loads(choice.message.content or ""))


def test_nearly_all_answers_come_to_an_end(answers: dict[str, ChatCompletion]) -> None:
    cut_off = [name for name, answered in answers.items() if answered.choices[0].finish_reason == "length"]
    assert len(cut_off) <= len(SCHEMAS) // 10, cut_off


def test_each_of_several_choices_is_valid(client: OpenAI) -> None:
    schema = record(a={"type": "integer", "minimum": 0, "maximum": 999}, b={"enum": ["x", "y", "z"]})
    choices = answer(client, schema, seed=3, n=6).choices
    contents = [choice.message.content or "" for choice in choices]
    for content in contents:
        Draft202012Validator(schema).validate(json.loads(content))
    assert len(set(contents)) > 1
