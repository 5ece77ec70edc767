"""The messages of /v1/ws: what a client may say, checked, and what it is told."""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from api.errors import ApiError, bad_request
from api.pipeline.parse import UncheckedRequest, parse_json
from api.relay.dialects.interface import Chunk

MAX_ID_CHARS = 128

RequestId = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]


class RequestMessage(msgspec.Struct, frozen=True, tag_field="type", tag="request"):
    """Run what the body of a POST to the endpoint would run. The client chose the id."""

    id: RequestId
    endpoint: Literal["chat.completions", "completions"]
    body: UncheckedRequest
    resume_grace_s: Annotated[float, Meta(gt=0)] | None = None  # the job outlives the socket for so long


class ResumeMessage(msgspec.Struct, frozen=True, tag_field="type", tag="resume"):
    """Go on with a job after the chunk numbered `after`, at any API process."""

    id: RequestId
    job: str
    after: Annotated[int, Meta(ge=0)] = 0


class CancelMessage(msgspec.Struct, frozen=True, tag_field="type", tag="cancel"):
    id: RequestId


ClientMessage = RequestMessage | ResumeMessage | CancelMessage
ServerMessage = dict[str, Any]

_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


def message_fields(text: str) -> UncheckedRequest:
    """The JSON object of a message. Raises ApiError 400."""
    return parse_json(text.encode())


def id_of(fields: UncheckedRequest) -> str | None:
    """The id that an answer to this message carries, whatever else is wrong with it."""
    found = fields.get("id")
    return found if isinstance(found, str) and 0 < len(found) <= MAX_ID_CHARS else None


def check_message(fields: UncheckedRequest) -> ClientMessage:
    """Raises ApiError 400 that names the field."""
    try:
        checked: ClientMessage = msgspec.convert(fields, ClientMessage)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        problem, param = (found[1], found[2]) if found else (str(error), None)
        raise bad_request(f"Invalid message: {problem.replace('`', '')}.", param, "invalid_message") from None
    return checked


def accepted(request_id: str, job_id: str) -> ServerMessage:
    return {"type": "accepted", "id": request_id, "job": job_id}


def chunk(request_id: str, number: int, data: Chunk) -> ServerMessage:
    return {"type": "chunk", "id": request_id, "seq": number, "data": data}


def done(request_id: str, finish_reason: str, usage: dict[str, Any] | None) -> ServerMessage:
    """`usage` is null after a cancel: nobody counts the tokens of a step that is thrown away."""
    return {"type": "done", "id": request_id, "finish_reason": finish_reason, "usage": usage}


def failed(request_id: str | None, error: ApiError) -> ServerMessage:
    return {"type": "error", "id": request_id} | error.body()
