"""POST /v1/chat/completions, and GET to go on with its stream."""

from functools import partial

from flask import Blueprint, Response, request

from api.endpoints import prepared_chat
from api.routes.generation import answer, check_admissible, read_request
from api.routes.resume import resume_stream
from api.services import services

routes = Blueprint("chat_completions", __name__)


@routes.post("/v1/chat/completions")
def create() -> Response:
    shared = services()
    unchecked, tenant = read_request()
    return answer(prepared_chat(shared, unchecked, tenant, partial(check_admissible, shared)))


@routes.get("/v1/chat/completions/<job_id>/stream")
def resume(job_id: str) -> Response:
    return resume_stream("chat.completions", job_id, request.args.get("after"))
