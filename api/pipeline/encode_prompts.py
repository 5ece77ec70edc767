"""From the prompts of a checked completion request to token ids, and the text with which its answers begin."""

from api.errors import bad_request, context_length_exceeded, unsupported_parameter
from api.pipeline.prompts import Prompt
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import ValidCompletionRequest

TokenIds = tuple[int, ...]


def encode_prompts(valid: ValidCompletionRequest, model: ServedModel) -> tuple[TokenIds, ...]:
    """One for each prompt. Raises ApiError 400 for one that is empty, does not fit or holds unknown ids."""
    for i, prompt in enumerate(valid.prompts):
        check_prompt(prompt, _param(valid, i), model)
    encoded = tuple(map(tuple, _encode(valid, model)))
    for i, ids in enumerate(encoded):
        if not ids:
            raise bad_request("The prompt is empty; this model needs at least one token.", _param(valid, i))
        if len(ids) >= model.max_context:
            raise context_length_exceeded(model.max_context, len(ids), "prompt")
    return encoded


def echoed_texts(valid: ValidCompletionRequest, model: ServedModel) -> tuple[str, ...]:
    """The text of each prompt; nothing unless the request asks for an echo."""
    if not valid.echo:
        return ()
    return tuple(prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt) for prompt in valid.prompts)


def check_prompt(prompt: Prompt, param: str, model: ServedModel) -> None:
    """What can be said of a prompt before the tokenizer reads anything. Raises ApiError 400."""
    if isinstance(prompt, str):
        fewest = model.tokenizer.fewest_tokens(len(prompt.strip().encode()))
        if fewest >= model.max_context:
            raise context_length_exceeded(model.max_context, fewest, "prompt", is_lower_bound=True)
    elif max(prompt) >= model.vocab_size:
        i = next(i for i, token_id in enumerate(prompt) if token_id >= model.vocab_size)
        raise bad_request(f"'{param}[{i}]' must be a token id below {model.vocab_size}.", f"{param}[{i}]")


def _encode(valid: ValidCompletionRequest, model: ServedModel) -> list[list[int]]:
    """Prompts are all text or all token ids."""
    if valid.suffix:
        if not model.tokenizer.can_fill_in:
            raise unsupported_parameter("suffix", "'' (this model has no tokens for filling in)")
        check_prompt(valid.suffix, "suffix", model)
        return model.tokenizer.encode_around(valid.prompts, valid.suffix)
    texts = [prompt for prompt in valid.prompts if isinstance(prompt, str)]
    if texts:
        return model.tokenizer.encode_prompts(texts)
    return [list(prompt) for prompt in valid.prompts if not isinstance(prompt, str)]


def _param(valid: ValidCompletionRequest, i: int) -> str:
    return "prompt" if len(valid.prompts) == 1 else f"prompt[{i}]"
