"""From a checked request to a Job: template, tokenizer and the limits that depend on the model."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from api.errors import bad_request, context_length_exceeded, not_found_model
from api.pipeline.generation import Generation
from api.pipeline.normalize import normalize_messages, normalize_sampling
from api.pipeline.prompts import Prompt
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import ValidChatRequest, ValidCompletionRequest
from api.settings import ApiSettings
from api.stream_view import StreamView
from worker.protocol.job import Job, mint_job_id

COMPLETION_MAX_TOKENS = 16  # OpenAI's default


@dataclass(frozen=True)
class PreparedRequest:
    """What is admitted, and how it will be shown."""

    job: Job
    view: StreamView


@dataclass(frozen=True)
class _Draft:
    """What both endpoints need for a Job beside their prompts."""

    endpoint: str
    generation: Generation
    model: ServedModel
    tenant: str
    settings: ApiSettings


def check_model(name: str, model: ServedModel) -> None:
    """Raises ApiError 404 model_not_found."""
    if name != model.name:
        raise not_found_model(name)


def cheap_size_bytes(valid: ValidChatRequest | ValidCompletionRequest) -> int:
    """UTF-8 bytes of text that are certain to reach the tokenizer, counted without template or tokenizer.

    Templates trim messages and drop parts of earlier answers, so those do not count.
    """
    return sum(len(text.strip().encode()) for text in _certain_texts(valid))


def _certain_texts(valid: ValidChatRequest | ValidCompletionRequest) -> Iterable[str]:
    if isinstance(valid, ValidChatRequest):
        return (message.content for message in valid.messages if message.role != "assistant")
    return (prompt for prompt in valid.prompts if isinstance(prompt, str))


def fewest_tokens(valid: ValidChatRequest | ValidCompletionRequest, model: ServedModel) -> int:
    """A lower bound of all prompts' tokens that costs next to nothing."""
    fewest = model.tokenizer.fewest_tokens(cheap_size_bytes(valid))
    if isinstance(valid, ValidChatRequest):
        # Each message and tool call takes a token at least, and time in the template even if it is empty.
        return max(fewest, sum(1 + len(message.tool_calls) for message in valid.messages))
    return fewest + sum(len(prompt) for prompt in valid.prompts if not isinstance(prompt, str))


def prepare_chat(valid: ValidChatRequest, model: ServedModel, tenant: str, settings: ApiSettings) -> PreparedRequest:
    """Raises ApiError: 404 for an unknown model, 400 for messages that do not fit or that the template refuses."""
    check_model(valid.model, model)
    fewest = fewest_tokens(valid, model)
    if fewest >= model.max_context:
        raise context_length_exceeded(model.max_context, fewest, "messages", is_lower_bound=True)
    ids = model.tokenizer.encode_chat(normalize_messages(valid.messages), model.max_context, valid.template)
    if len(ids) >= model.max_context:
        raise context_length_exceeded(model.max_context, len(ids), "messages")
    draft = _Draft("chat.completions", valid.generation, model, tenant, settings)
    return _finish(draft, (tuple(ids),), default_max_tokens=model.max_context)


def prepare_completion(
    valid: ValidCompletionRequest, model: ServedModel, tenant: str, settings: ApiSettings
) -> PreparedRequest:
    """Raises ApiError: 404 for an unknown model, 400 for a prompt that is empty, does not fit or holds unknown ids."""
    check_model(valid.model, model)
    for i, prompt in enumerate(valid.prompts):
        _check_prompt(prompt, _prompt_param(valid, i), model)
    prompts = _encode_prompts(valid.prompts, model)
    for i, ids in enumerate(prompts):
        if not ids:
            raise bad_request("The prompt is empty; this model needs at least one token.", _prompt_param(valid, i))
        if len(ids) >= model.max_context:
            raise context_length_exceeded(model.max_context, len(ids), "prompt")
    draft = _Draft("completions", valid.generation, model, tenant, settings)
    return _finish(draft, prompts, default_max_tokens=COMPLETION_MAX_TOKENS)


def _prompt_param(valid: ValidCompletionRequest, i: int) -> str:
    return "prompt" if len(valid.prompts) == 1 else f"prompt[{i}]"


def _check_prompt(prompt: Prompt, param: str, model: ServedModel) -> None:
    """What can be said of a prompt before the tokenizer reads anything."""
    if isinstance(prompt, str):
        fewest = model.tokenizer.fewest_tokens(len(prompt.strip().encode()))
        if fewest >= model.max_context:
            raise context_length_exceeded(model.max_context, fewest, "prompt", is_lower_bound=True)
    elif max(prompt) >= model.vocab_size:
        i = next(i for i, token_id in enumerate(prompt) if token_id >= model.vocab_size)
        raise bad_request(f"'{param}[{i}]' must be a token id below {model.vocab_size}.", f"{param}[{i}]")


def _encode_prompts(prompts: tuple[Prompt, ...], model: ServedModel) -> tuple[tuple[int, ...], ...]:
    """Prompts are all text or all token ids."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if texts:
        return tuple(map(tuple, model.tokenizer.encode_prompts(texts)))
    return tuple(prompt for prompt in prompts if not isinstance(prompt, str))


def _finish(draft: _Draft, prompts: tuple[tuple[int, ...], ...], default_max_tokens: int) -> PreparedRequest:
    # The shortest prompt leaves the most room; the engine ends each sequence at the end of its own context.
    room = draft.model.max_context - min(map(len, prompts))
    sampling = normalize_sampling(
        draft.generation, room=room, default_max_tokens=default_max_tokens, vocab_size=draft.model.vocab_size
    )
    timeout_s = min(draft.generation.timeout_s or draft.settings.timeout_s, draft.settings.timeout_s)
    job = Job(
        id=mint_job_id(draft.endpoint, draft.model.name),
        pool=draft.model.name,
        tenant=draft.tenant,
        prompts=prompts,
        sampling=sampling,
        created_s=int(time.time()),
        timeout_ms=max(1, round(timeout_s * 1000)),
        expected_tokens=min(sampling.max_tokens, draft.settings.expected_tokens),
    )
    view = StreamView(
        endpoint=draft.endpoint,
        model=job.pool,
        created_s=job.created_s,
        num_choices=job.num_choices,
        include_usage=draft.generation.include_usage,
        is_stream=draft.generation.stream,
    )
    return PreparedRequest(job, view)
