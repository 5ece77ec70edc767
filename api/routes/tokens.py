"""POST /tokenize, /detokenize and /v1/chat/completions/input_tokens: answered here, without a worker."""

from typing import Any

from flask import Blueprint

from api.pipeline.token_requests import count_chat_tokens, detokenize, tokenize
from api.routes.generation import read_request
from api.services import services

routes = Blueprint("tokens", __name__)


@routes.post("/tokenize")
def create_tokens() -> dict[str, Any]:
    return tokenize(read_request()[0], services().model)


@routes.post("/detokenize")
def create_text() -> dict[str, Any]:
    return detokenize(read_request()[0], services().model)


@routes.post("/v1/chat/completions/input_tokens")
def count_input_tokens() -> dict[str, Any]:
    return count_chat_tokens(read_request()[0], services().model)
