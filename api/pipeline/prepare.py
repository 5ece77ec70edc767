"""From a checked request to a Job: template, tokenizer and the limits that depend on the model."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from api.errors import bad_request, context_length_exceeded, not_found_model
from api.pipeline.answer_plan import AnswerPlan
from api.pipeline.encode_prompts import TokenIds, echoed_texts, encode_prompts
from api.pipeline.generation import Generation
from api.pipeline.normalize import normalize_messages, normalize_sampling, used_tier
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import ValidChatRequest, ValidCompletionRequest
from api.settings import ApiSettings
from api.stream_view import StreamView
from worker.protocol.job import Job, mint_job_id

MAX_ECHOED_LOGPROBS = 32_768  # tokens; an answer that tells of them has some 10 MB
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
    plan: AnswerPlan


def check_model(name: str, model: ServedModel) -> None:
    """Raises ApiError 404 model_not_found."""
    if name not in model.names:
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


def prepare_chat(
    valid: ValidChatRequest,
    model: ServedModel,
    tenant: str,
    settings: ApiSettings,
    endpoint: str = "chat.completions",
) -> PreparedRequest:
    """`endpoint`: of another API whose requests are chats too.

    Raises ApiError: 404 for an unknown model, 400 for messages that do not fit or that the template refuses.
    """
    check_model(valid.model, model)
    check_generation_ids(valid.generation, model)
    ids = encode_chat(valid, model)
    if len(ids) >= model.max_context:
        raise context_length_exceeded(model.max_context, len(ids), "messages")
    plan = model.style.plan(valid.tools, valid.structure, _prompt_end(ids, model))
    draft = _Draft(endpoint, valid.generation, model, tenant, settings, plan)
    return _finish(draft, (ids,), model.max_context)


def _prompt_end(ids: TokenIds, model: ServedModel) -> str:
    """As much of the prompt as tells how the answer goes on from it."""
    end = model.tokenizer.end_of(ids)
    return end if model.style.sees_beginning(end) else model.tokenizer.decode(ids)


def encode_chat(valid: ValidChatRequest, model: ServedModel) -> TokenIds:
    """Raises ApiError 400 for messages that the template refuses, or whose tokens need not be counted not to fit."""
    fewest = fewest_tokens(valid, model)
    if fewest >= model.max_context:
        raise context_length_exceeded(model.max_context, fewest, "messages", is_lower_bound=True)
    messages, options = model.style.conversation(normalize_messages(valid.messages), valid)
    return tuple(model.tokenizer.encode_chat(messages, model.max_context, options))


def prepare_completion(
    valid: ValidCompletionRequest, model: ServedModel, tenant: str, settings: ApiSettings
) -> PreparedRequest:
    """Raises ApiError: 404 for an unknown model, 400 for a prompt that is empty, does not fit or holds unknown ids."""
    check_model(valid.model, model)
    check_generation_ids(valid.generation, model)
    prompts = encode_prompts(valid, model)
    _check_echo(valid, sum(map(len, prompts)))
    plan = model.style.plan_text(valid.structure)
    draft = _Draft("completions", valid.generation, model, tenant, settings, plan)
    return _finish(draft, prompts, COMPLETION_MAX_TOKENS, echoed_texts(valid, model))


def _check_echo(valid: ValidCompletionRequest, num_prompt_tokens: int) -> None:
    """Each choice tells of its whole prompt again. Raises ApiError 400."""
    num_told = num_prompt_tokens * valid.generation.n
    if valid.echo and valid.generation.logprobs is not None and num_told > MAX_ECHOED_LOGPROBS:
        message = (
            f"'echo' with 'logprobs' may tell of {MAX_ECHOED_LOGPROBS} prompt tokens in all choices together, "
            f"but this request asks for {num_told}."
        )
        raise bad_request(message, "echo")


def check_generation_ids(generation: Generation, model: ServedModel) -> None:
    """Raises ApiError 400 for token ids that the model does not have."""
    named = {"logit_bias": [id for id, _ in generation.logit_bias], "stop_token_ids": generation.stop_token_ids}
    for param, ids in named.items():
        if ids and max(ids) >= model.vocab_size:
            message = f"'{param}' names token {max(ids)}, but token ids are below {model.vocab_size}."
            raise bad_request(message, param)


def _finish(
    draft: _Draft, prompts: tuple[TokenIds, ...], default_max_tokens: int, echo: tuple[str, ...] = ()
) -> PreparedRequest:
    # The shortest prompt leaves the most room; the engine ends each sequence at the end of its own context.
    room = draft.model.max_context - min(map(len, prompts))
    sampling = normalize_sampling(
        draft.generation, room=room, default_max_tokens=default_max_tokens, vocab_size=draft.model.vocab_size
    )
    sampling = replace(sampling, grammar=draft.plan.grammar, shown_tokens=draft.plan.shown_tokens)
    if echo:
        sampling = replace(sampling, prompt_logprobs=sampling.logprobs)
    job_class, tier = used_tier(draft.generation.service_tier)
    timeout_s = min(draft.generation.timeout_s or draft.settings.timeout_s, draft.settings.timeout_s)
    job = Job(
        id=mint_job_id(draft.endpoint, draft.model.name),
        pool=draft.model.name,
        tenant=draft.tenant,
        prompts=prompts,
        sampling=sampling,
        job_class=job_class,
        created_s=int(time.time()),
        timeout_ms=max(1, round(timeout_s * 1000)),
        expected_tokens=min(sampling.max_tokens, draft.settings.expected_tokens),
        n=draft.generation.n,
    )
    view = StreamView(
        endpoint=draft.endpoint,
        model=job.pool,
        created_s=job.created_s,
        num_choices=job.num_choices,
        include_usage=draft.generation.include_usage,
        is_stream=draft.generation.stream,
        is_seeded=draft.generation.seed is not None,
        answer=draft.plan.format,
        tells_logprobs=sampling.logprobs is not None,
        echo=echo,
        service_tier=tier,
    )
    return PreparedRequest(job, view)
