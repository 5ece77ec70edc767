"""A job's events as one response object."""

from collections.abc import Iterable
from typing import Any

from api.relay.chunks import StreamView, usage_of
from worker.protocol.event import Delta, Event, Terminal


def whole_response(job_id: str, view: StreamView, events: Iterable[Event], num_choices: int) -> dict[str, Any]:
    """The answer of a job that succeeded. `events` are all of its events."""
    texts = [""] * num_choices
    finishes: list[str | None] = [None] * num_choices
    usage: dict[str, Any] = {}
    for event in events:
        if isinstance(event, Terminal):
            usage = usage_of(event)
        else:
            _add(event, texts, finishes)
    is_chat = view.endpoint == "chat.completions"
    shown = _chat_choice if is_chat else _completion_choice
    return {
        "id": job_id,
        "object": "chat.completion" if is_chat else "text_completion",
        "created": view.created_s,
        "model": view.model,
        "choices": [shown(i, text, finish) for i, (text, finish) in enumerate(zip(texts, finishes, strict=True))],
        "usage": usage,
    }


def _add(delta: Delta, texts: list[str], finishes: list[str | None]) -> None:
    texts[delta.choice] += delta.text
    finishes[delta.choice] = delta.finish


def _chat_choice(index: int, text: str, finish: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _completion_choice(index: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
