"""POST /v1/completions, and GET to go on with its stream."""

from flask import Blueprint, Response, request

from api.pipeline.prepare import check_model, prepare_completion
from api.pipeline.validate import validate_completion
from api.routes.generation import answer, check_admissible, read_request
from api.routes.resume import resume_stream
from api.services import services

routes = Blueprint("completions", __name__)


@routes.post("/v1/completions")
def create() -> Response:
    shared = services()
    unchecked, tenant = read_request()
    valid = validate_completion(unchecked)
    check_model(valid.model, shared.model)
    check_admissible(shared, valid.generation.service_tier)
    return answer(prepare_completion(valid, shared.model, tenant, shared.settings))


@routes.get("/v1/completions/<job_id>/stream")
def resume(job_id: str) -> Response:
    return resume_stream(job_id, request.args.get("after"))
