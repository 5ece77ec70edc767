"""Drives a server with instructor and prints what came of it as one JSON object. Arguments: base URL, model."""

import json
import sys
from collections.abc import Iterator
from typing import Any, Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel

BASE_URL, MODEL = sys.argv[1:]
MESSAGES = [{"role": "user", "content": "Where does the river rise?"}]
ASKED: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_retries": 0}


class River(BaseModel):
    """A river."""

    name: Literal["Isar"]
    is_long: Literal[True]


def told(river: River, raw: Any) -> list[Any]:
    return [river.model_dump(), raw.choices[0].finish_reason, raw.usage.completion_tokens > 0]


def main() -> Iterator[tuple[str, Any]]:
    """What was seen, by what was tried."""
    client = OpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        patched = instructor.from_openai(client, mode=mode)
        yield mode.value, told(*patched.chat.completions.create_with_completion(response_model=River, **ASKED))
        partial = patched.chat.completions.create_partial(response_model=River, **ASKED)
        yield f"{mode.value}, partial", [river.model_dump() for river in partial][-1]
    patched = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
    yield "responses", patched.chat.completions.create(response_model=River, **ASKED).model_dump()


print(json.dumps(dict(main())))
