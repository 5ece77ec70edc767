"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API over the same jobs."""

from typing import Any

from flask import Blueprint, Response
from msgspec.structs import replace

from api.errors import ApiError
from api.pipeline.anthropic_request import OWN_NAMES, validate_count, validate_messages
from api.pipeline.own_words import in_own_words
from api.pipeline.prepare import PreparedRequest, check_model, encode_chat, prepare_chat
from api.pipeline.validate import ValidChatRequest
from api.routes.generation import answer, check_admissible, read_request
from api.services import Services, services

ENDPOINT = "messages"

routes = Blueprint("messages", __name__)


@routes.post("/v1/messages")
def create() -> Response:
    shared = services()
    unchecked, tenant = read_request()
    valid = validate_messages(unchecked)
    check_model(valid.model, shared.model)
    check_admissible(shared, valid.generation.service_tier)
    return answer(_prepared(shared, valid, tenant))


@routes.post("/v1/messages/count_tokens")
def count_tokens() -> dict[str, Any]:
    shared = services()
    unchecked, _ = read_request()
    valid = validate_count(unchecked)
    check_model(valid.model, shared.model)
    try:
        return {"input_tokens": len(encode_chat(valid, shared.model))}
    except ApiError as error:
        raise in_own_words(error, OWN_NAMES) from error


def _prepared(shared: Services, valid: ValidChatRequest, tenant: str) -> PreparedRequest:
    try:
        prepared = prepare_chat(valid, shared.model, tenant, shared.settings, ENDPOINT)
    except ApiError as error:
        raise in_own_words(error, OWN_NAMES) from error
    shown = {"input_tokens": prepared.job.num_prompt_tokens}
    return PreparedRequest(prepared.job, replace(prepared.view, shown=shown))
