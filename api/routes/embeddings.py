"""POST /v1/embeddings: refused, in words that tell a client which of its assumptions is wrong."""

from flask import Blueprint, Response

from api.pipeline.embedding_request import refusal_of_embeddings
from api.routes.generation import read_request
from api.services import services

routes = Blueprint("embeddings", __name__)


@routes.post("/v1/embeddings")
def create() -> Response:
    raise refusal_of_embeddings(read_request()[0], services().model)
