"""Requests about tokens alone: what a text or a conversation is made of, and back. As vLLM's servers have them."""

from collections.abc import Sequence

import msgspec

from api.errors import bad_request
from api.pipeline.encode_prompts import check_prompt
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prepare import check_model, encode_chat
from api.pipeline.raw import TokenId, convert
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import validate_chat


class RawTokenize(msgspec.Struct):
    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class RawDetokenize(msgspec.Struct):
    model: str | None = None
    tokens: list[TokenId] | None = None


def tokenize(request: UncheckedRequest, model: ServedModel) -> dict[str, object]:
    """The tokens of a prompt, or of the messages of a chat request. Raises ApiError 400 and 404."""
    raw = convert(request, RawTokenize)
    if (raw.prompt is None) == (request.get("messages") is None):
        raise bad_request("Send either 'prompt' or 'messages'.", "prompt")
    ids = _chat_ids(request, model) if raw.prompt is None else _prompt_ids(raw, raw.prompt, model)
    return {
        "count": len(ids),
        "max_model_len": model.max_context,
        "tokens": ids,
        "token_strs": model.tokenizer.pieces(ids) if raw.return_token_strs else None,
    }


def detokenize(request: UncheckedRequest, model: ServedModel) -> dict[str, object]:
    """The text of tokens, control tokens as they are written. Raises ApiError 400 and 404."""
    raw = convert(request, RawDetokenize)
    check_model(raw.model or model.name, model)
    if raw.tokens is None:
        raise bad_request("You must provide the parameter 'tokens'.", "tokens")
    if raw.tokens:
        check_prompt(tuple(raw.tokens), "tokens", model)
    return {"prompt": model.tokenizer.decode(raw.tokens)}


def count_chat_tokens(request: UncheckedRequest, model: ServedModel) -> dict[str, object]:
    """How many tokens the prompt of a chat request has. Raises ApiError 400 and 404."""
    return {"object": "response.input_tokens", "input_tokens": len(_chat_ids(request, model))}


def _prompt_ids(raw: RawTokenize, prompt: str, model: ServedModel) -> Sequence[int]:
    check_model(raw.model or model.name, model)
    check_prompt(prompt, "prompt", model)
    return model.tokenizer.encode_prompts([prompt], raw.add_special_tokens is not False)[0]


def _chat_ids(request: UncheckedRequest, model: ServedModel) -> Sequence[int]:
    valid = validate_chat({**request, "model": request.get("model") or model.name})
    check_model(valid.model, model)
    return encode_chat(valid, model)
