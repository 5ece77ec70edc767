"""GET /v1/models and /v1/models/{id}."""

from typing import Any

from flask import Blueprint, request

from api import errors
from api.pipeline.served_model import ServedModel
from api.services import services

routes = Blueprint("models", __name__)


@routes.get("/v1/models")
def list_models() -> dict[str, Any]:
    shared = services()
    shared.keys.tenant_of(request.headers.get("Authorization"))
    return {"object": "list", "data": [_shown(shared.model)]}


@routes.get("/v1/models/<path:name>")
def get_model(name: str) -> dict[str, Any]:
    shared = services()
    shared.keys.tenant_of(request.headers.get("Authorization"))
    if name.rstrip("/") != shared.model.name:
        raise errors.not_found_model(name)
    return _shown(shared.model)


def _shown(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "headrace",
        "max_model_len": model.max_context,
    }
