"""One way of saying each thing: what a checked request leaves open or may say in several ways is settled here."""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from api.pipeline.generation import Generation
from api.pipeline.messages import Message
from worker.protocol.job import JobClass, SamplingParams

GREEDY_BELOW = 1e-4  # a temperature so small overflows the division and means the most likely token anyway
SEED_SPAN = 2**64
BATCH_TIERS = ("flex", "batch")  # they wait until nothing urgent does; all the others are served alike


def normalize_messages(messages: Sequence[Message]) -> list[Message]:
    """As templates know them: developer becomes system, its older name, and arguments of tool calls objects."""
    return [
        replace(
            message,
            role="system" if message.role == "developer" else message.role,
            tool_calls=tuple(replace(call, arguments=_parsed(call.arguments)) for call in message.tool_calls),
        )
        for message in messages
    ]


def _parsed(arguments: str | dict[str, Any]) -> str | dict[str, Any]:
    """OpenAI sends JSON text, most templates write an object as JSON themselves: text would be quoted twice."""
    if isinstance(arguments, dict) or not arguments:
        return arguments or {}
    try:
        parsed = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def normalize_sampling(
    generation: Generation, *, room: int, default_max_tokens: int, vocab_size: int
) -> SamplingParams:
    """`room` is how many tokens the context leaves for the answer; max_tokens beyond it is an upper bound."""
    wanted = default_max_tokens if generation.max_tokens is None else generation.max_tokens
    temperature = 1.0 if generation.temperature is None else generation.temperature
    top_k = generation.top_k or 0
    return SamplingParams(
        max_tokens=min(wanted, room),
        seed=secrets.randbits(64) if generation.seed is None else generation.seed % SEED_SPAN,
        temperature=temperature if temperature >= GREEDY_BELOW else 0.0,
        top_p=1.0 if generation.top_p is None else generation.top_p,
        top_k=top_k if 0 < top_k < vocab_size else 0,
        min_p=generation.min_p or 0.0,
        presence_penalty=generation.presence_penalty,
        frequency_penalty=generation.frequency_penalty,
        repetition_penalty=generation.repetition_penalty,
        logit_bias=generation.logit_bias,
        stop=generation.stop,
        stop_token_ids=generation.stop_token_ids,
        min_tokens=generation.min_tokens,
        ignore_eos=generation.ignore_eos,
        logprobs=generation.logprobs,
        include_stop=generation.include_stop,
    )


def used_tier(service_tier: str | None) -> tuple[JobClass, str]:
    """The queue class that a service tier stands for, and the tier to tell: "" where the request named none."""
    if service_tier in BATCH_TIERS:
        return JobClass.BATCH, "flex"
    return JobClass.INTERACTIVE, "default" if service_tier else ""
