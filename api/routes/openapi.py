"""GET /openapi.json: what the server takes and gives, for tools that read it."""

from functools import cache

import msgspec
from flask import Blueprint, Response, current_app

from api.openapi.document import openapi_document

routes = Blueprint("openapi", __name__)


@routes.get("/openapi.json")
def document() -> Response:
    return Response(_encoded(), content_type="application/json")


@cache
def _encoded() -> bytes:
    """Made when first asked for: routes do not change afterwards."""
    return msgspec.json.encode(openapi_document(current_app.url_map))
