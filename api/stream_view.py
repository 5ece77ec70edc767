"""How a job is shown to its client: written by the pipeline, kept with the job, read by any process that relays it."""

from typing import Any

import msgspec


class AnswerFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the text that the model writes is to be read. Empty: all of it is content."""

    reasoning: str = ""  # "open": it begins with thoughts; "marked": so it does where it says so itself
    tools: str = ""  # how tool calls are written: tagged, mistral or bare
    tool_names: tuple[str, ...] = ()  # functions that may be called
    is_single: bool = False  # calls after the first are left out
    template: str = ""  # the model's own response template as JSON, which then says how all of it is read
    begun: str = ""  # how far the prompt has begun the answer, for the template
    functions: dict[str, Any] = {}  # their parameters by name, where the template does not tell what is a number
    is_legacy: bool = False  # the one call is told as a `function_call`, as clients knew it before tools


class StreamView(msgspec.Struct, frozen=True, omit_defaults=True):
    endpoint: str  # chat.completions, completions, ...
    model: str
    created_s: int
    num_choices: int = 1
    include_usage: bool = False
    is_stream: bool = False
    resume_grace_ms: int = 0  # 0: a client that leaves cancels the job
    is_background: bool = False  # nobody has to wait for the job, and its events are kept for `kept_ms`
    kept_ms: int = 0  # how long a job that has ended can be read; 0: as the settings say
    is_warm_up: bool = False  # only the prompt is worked on: whatever is generated is not told
    is_seeded: bool = False  # by the request itself; else a seed was minted
    request_digest: str = ""  # tells a repeat under an idempotency key from another request
    answer: AnswerFormat = AnswerFormat()
    tells_logprobs: bool = False
    echo: tuple[str, ...] = ()  # the text of each prompt, where the answer begins with it
    service_tier: str = ""  # as it is told; empty: not at all
    shown: dict[str, Any] = {}  # what else of the request an answer repeats
