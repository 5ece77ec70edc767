"""GET /v1/models and /v1/models/{id}."""

from typing import Any

from flask import Blueprint

from api.pipeline.prepare import check_model
from api.pipeline.served_model import ServedModel
from api.services import services, tenant_of_request

routes = Blueprint("models", __name__)


@routes.get("/v1/models")
def list_models() -> dict[str, Any]:
    """The model, once under each of its names."""
    shared = services()
    tenant_of_request()
    return {"object": "list", "data": [_shown(name, shared.model) for name in shared.model.names]}


@routes.get("/v1/models/<path:name>")
def get_model(name: str) -> dict[str, Any]:
    shared = services()
    tenant_of_request()
    name = name.rstrip("/")
    check_model(name, shared.model)
    return _shown(name, shared.model)


def _shown(name: str, model: ServedModel) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "headrace",
        "root": model.name,  # what answers call it
        "max_model_len": model.max_context,
    }
