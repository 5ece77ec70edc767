"""POST /v1/completions, and GET to go on with its stream."""

from functools import partial

from flask import Blueprint, Response, request

from api.endpoints import prepared_completion
from api.routes.generation import answer, check_admissible, read_request
from api.routes.resume import resume_stream
from api.services import services

routes = Blueprint("completions", __name__)


@routes.post("/v1/completions")
def create() -> Response:
    shared = services()
    unchecked, tenant = read_request()
    return answer(prepared_completion(shared, unchecked, tenant, partial(check_admissible, shared)))


@routes.get("/v1/completions/<job_id>/stream")
def resume(job_id: str) -> Response:
    return resume_stream("completions", job_id, request.args.get("after"))
