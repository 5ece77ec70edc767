"""From unchecked JSON to a checked request: types, ranges and the shape of messages and prompts.

The structs named Raw hold the right types only; what leaves this module as a Valid request has been checked in full,
as far as that goes without the model.
"""

from dataclasses import dataclass

from api.errors import bad_request, unsupported_parameter
from api.pipeline.chat_template import USUAL, TemplateOptions, check_template_options
from api.pipeline.generation import Generation, check_generation
from api.pipeline.messages import Message, check_messages
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prompts import Prompt, check_prompts
from api.pipeline.raw import RawChatRequest, RawCompletionRequest, RawRequest, convert
from api.pipeline.reasoning import Effort
from api.pipeline.structured_output import Structure, check_structure
from api.pipeline.tools import NO_TOOLS, ToolUse, check_functions, check_tools
from api.pipeline.unserved import CHAT, COMPLETIONS, refuse_unserved

MAX_CHOICES = 1024  # answers to all prompts of one request


@dataclass(frozen=True)
class ValidChatRequest:
    model: str
    messages: tuple[Message, ...]
    generation: Generation
    template: TemplateOptions = USUAL
    tools: ToolUse = NO_TOOLS
    structure: Structure | None = None
    effort: Effort | None = None


@dataclass(frozen=True)
class ValidCompletionRequest:
    model: str
    prompts: tuple[Prompt, ...]
    generation: Generation
    echo: bool = False
    suffix: str = ""  # what shall follow the answer
    structure: Structure | None = None


def validate_chat(request: UncheckedRequest) -> ValidChatRequest:
    """Raises ApiError 400 that names the field."""
    raw = convert(request, RawChatRequest)
    model = _required_model(raw)
    messages = check_messages(raw.messages)
    limits = [limit for limit in (raw.max_tokens, raw.max_completion_tokens) if limit is not None]
    generation = check_generation(raw, min(limits, default=None), _chat_logprobs(raw))
    template = check_template_options(raw.add_generation_prompt, raw.continue_final_message, raw.chat_template_kwargs)
    refuse_unserved(request, CHAT)
    return ValidChatRequest(
        model=model,
        messages=messages,
        generation=generation,
        template=template,
        tools=_check_tool_use(raw),
        structure=check_structure(raw),
        effort=raw.reasoning_effort,
    )


def validate_completion(request: UncheckedRequest) -> ValidCompletionRequest:
    """Raises ApiError 400 that names the field."""
    raw = convert(request, RawCompletionRequest)
    model = _required_model(raw)
    prompts = check_prompts(raw.prompt)
    generation = check_generation(raw, raw.max_tokens, raw.logprobs)
    if len(prompts) * generation.n > MAX_CHOICES:
        raise bad_request(f"'n' times the number of prompts must be at most {MAX_CHOICES}.", "n")
    if raw.best_of is not None and raw.best_of != generation.n:
        raise unsupported_parameter("best_of", f"{generation.n}, the value of 'n'")
    if raw.max_tokens == 0 and not raw.echo:
        raise bad_request("'max_tokens' must be at least 1, unless 'echo' asks for the prompt.", "max_tokens")
    if raw.echo and raw.suffix:
        raise bad_request("'echo' and 'suffix' cannot be used together.", "suffix")
    refuse_unserved(request, COMPLETIONS)
    structure = check_structure(raw)
    return ValidCompletionRequest(model, prompts, generation, bool(raw.echo), raw.suffix or "", structure)


def _check_tool_use(raw: RawChatRequest) -> ToolUse:
    neutral = (None, "none", "auto")
    is_legacy = bool(raw.functions) or raw.function_call not in neutral
    if is_legacy and (raw.tools or raw.tool_choice not in neutral):
        raise bad_request("'functions' and 'function_call' cannot be used together with 'tools'.", "functions")
    if is_legacy:
        return check_functions(raw.functions, raw.function_call)
    return check_tools(raw.tools, raw.tool_choice, raw.parallel_tool_calls)


def _chat_logprobs(raw: RawChatRequest) -> int | None:
    if raw.logprobs:
        return raw.top_logprobs or 0
    if raw.top_logprobs:
        raise bad_request("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs")
    return None


def _required_model(raw: RawRequest) -> str:
    if not raw.model:
        raise bad_request("You must provide a model parameter.", "model")
    return raw.model
