"""A request for embeddings, checked. None can be served: the models here write text."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from api.errors import ApiError, bad_request
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prepare import check_model
from api.pipeline.prompts import check_prompts
from api.pipeline.raw import convert
from api.pipeline.served_model import ServedModel


class RawEmbeddingRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: str | list[Any] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None


def refusal_of_embeddings(request: UncheckedRequest, model: ServedModel) -> ApiError:
    """Why a request that is right in itself is not served. Raises ApiError for one that is not."""
    raw = convert(request, RawEmbeddingRequest)
    if not raw.model:
        raise bad_request("You must provide a model parameter.", "model")
    check_prompts(raw.input, "input")
    check_model(raw.model, model)
    message = f"The model '{raw.model}' writes text and makes no embeddings; no embedding model is served here."
    return bad_request(message, "model", "model_not_supported")
