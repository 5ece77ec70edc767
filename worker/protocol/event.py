"""Events: what a worker tells the world about a job, in the order of the job's replay list.

The replay list holds one encoded Event an entry; an Event's sequence number is its place in that list, from 1.
A frame is what one engine step publishes: ``[[job_id, sequence_number, event], ...]`` in msgpack. The Lua scripts
build frames out of encoded events, so nothing is published that was not appended first.
"""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length"]
TerminalState = Literal["succeeded", "failed", "cancelled", "expired"]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A token and the natural logarithm of its probability under the model, before temperature, penalties and filters.

    `text` is the token's own bytes, which may be part of a character. -inf is a token the model rules out.
    """

    token_id: int
    logprob: float
    text: bytes


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """What is told of one place of an answer: the token there, and the most probable ones, the best first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


class Delta(msgspec.Struct, frozen=True, array_like=True, tag="delta"):
    """The tokens one step added to one choice. `text` is empty while a character or stop string is incomplete.

    `logprobs`, where the job asked for them, has an entry for each token that is part of the text; end tokens are not.
    `prompt_logprobs`, on the first delta of a prompt's first choice, has one for each token of the prompt; the first
    token has none. `matched_stop` is the stop string or token id that ended the choice.
    """

    choice: int
    token_ids: tuple[int, ...]
    text: str
    finish: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    matched_stop: str | int | None = None


class Terminal(msgspec.Struct, frozen=True, array_like=True, tag="terminal"):
    """The one last event of a job. `code` and `message` say why, unless the job succeeded."""

    state: TerminalState
    code: str = ""
    message: str = ""
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_cached_tokens: int = 0
    ended_s: int = 0  # Unix time at which a job succeeded; 0 where it is not told


Event = Delta | Terminal

_encoder = msgspec.msgpack.Encoder()
_event_decoder = msgspec.msgpack.Decoder(Event)
_frame_decoder = msgspec.msgpack.Decoder(list[tuple[str, int, Event]])


def encode_event(event: Event) -> bytes:
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """Raises msgspec.DecodeError when the bytes are not an Event."""
    decoded: Event = _event_decoder.decode(data)
    return decoded


def decode_frame(data: bytes) -> list[tuple[str, int, Event]]:
    """(job id, sequence number, event) of each row. Raises msgspec.DecodeError on foreign bytes."""
    return _frame_decoder.decode(data)
