"""From unchecked JSON to a checked request: types, ranges and the shape of messages and prompts.

The structs named Raw hold the right types only; what leaves this module as a Valid request has been checked in full,
as far as that goes without the model.
"""

from dataclasses import dataclass

from api.errors import bad_request
from api.pipeline.chat_template import USUAL, TemplateOptions, check_template_options
from api.pipeline.generation import Generation, check_generation
from api.pipeline.messages import Message, check_messages
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prompts import Prompt, check_prompts
from api.pipeline.raw import RawChatRequest, RawCompletionRequest, RawRequest, convert
from api.pipeline.unserved import CHAT, COMPLETIONS, refuse_unserved


@dataclass(frozen=True)
class ValidChatRequest:
    model: str
    messages: tuple[Message, ...]
    generation: Generation
    template: TemplateOptions = USUAL


@dataclass(frozen=True)
class ValidCompletionRequest:
    model: str
    prompts: tuple[Prompt, ...]
    generation: Generation


def validate_chat(request: UncheckedRequest) -> ValidChatRequest:
    """Raises ApiError 400 that names the field."""
    raw = convert(request, RawChatRequest)
    model = _required_model(raw)
    messages = check_messages(raw.messages)
    limits = [limit for limit in (raw.max_tokens, raw.max_completion_tokens) if limit is not None]
    generation = check_generation(raw, min(limits, default=None))
    refuse_unserved(request, CHAT)
    template = check_template_options(raw.add_generation_prompt, raw.continue_final_message, raw.chat_template_kwargs)
    return ValidChatRequest(model, messages, generation, template)


def validate_completion(request: UncheckedRequest) -> ValidCompletionRequest:
    """Raises ApiError 400 that names the field."""
    raw = convert(request, RawCompletionRequest)
    model = _required_model(raw)
    prompts = check_prompts(raw.prompt)
    generation = check_generation(raw, raw.max_tokens)
    refuse_unserved(request, COMPLETIONS)
    return ValidCompletionRequest(model, prompts, generation)


def _required_model(raw: RawRequest) -> str:
    if not raw.model:
        raise bad_request("You must provide a model parameter.", "model")
    return raw.model
