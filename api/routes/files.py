"""/v1/files: what batches read, and what they wrote."""

import socket
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import quote

import msgspec
from flask import Blueprint, Response, request

from api.batch.files import FileRecord, NoSuchFile, Order, Purpose
from api.errors import NO_RETRY, ApiError, bad_request, not_found
from api.routes.paging import choice_asked, limit_asked, page_of
from api.routes.stores import stores_asked
from api.services import Services, services, tenant_of_request

MAX_LISTED = 10_000
_PIECE = 256 * 1024  # bytes

routes = Blueprint("files", __name__)
Json = dict[str, Any]


@routes.post("/v1/files")
@stores_asked()
def create() -> Json:
    """Keep an uploaded file."""
    return _shown(services().uploads.receive(request.environ, tenant_of_request()))


@routes.get("/v1/files")
@stores_asked()
def list_files() -> Json:
    """The tenant's files, a page of them, the latest first unless asked otherwise."""
    tenant, after = tenant_of_request(), request.args.get("after")
    order: Order = "asc" if choice_asked("order", "desc", "asc") == "asc" else "desc"
    purpose = choice_asked("purpose", "", *Purpose.__args__) or None  # type: ignore[attr-defined]
    try:
        page = services().files.list(tenant, after, limit_asked(MAX_LISTED, MAX_LISTED), order, purpose)
    except NoSuchFile:
        raise bad_request("'after' must be the id of a file that is there.", "after") from None
    return page_of([_shown(record) for record in page.data], has_more=page.has_more)


@routes.get("/v1/files/<file_id>")
@stores_asked()
def retrieve(file_id: str) -> Json:
    return _shown(_known(services(), file_id))


@routes.delete("/v1/files/<file_id>")
@stores_asked()
def delete(file_id: str) -> Json:
    """Unless a batch that has not ended reads it."""
    verdict = services().files.delete(tenant_of_request(), file_id)
    if verdict == "held":
        message = "A batch that has not ended yet reads this file. Cancel the batch first, or wait for its end."
        raise ApiError(409, message, code="file_in_use", headers=NO_RETRY)
    if verdict == "unknown":
        raise _no_such_file(file_id)
    return {"id": file_id, "object": "file", "deleted": True}


@routes.get("/v1/files/<file_id>/content")
@stores_asked()
def content(file_id: str) -> Response:
    """The bytes of a file, or a range of them."""
    shared = services()
    record = _known(shared, file_id)
    start, stop = _asked_span(record)
    headers = _headers(record) | {"Content-Length": str(stop - start)}
    is_part = stop - start < record.bytes
    if is_part:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{record.bytes}"
    status = 206 if is_part else 200
    if request.method == "HEAD":
        return Response(status=status, headers=headers)
    file = _opened(shared, record, start)
    _cut_off_stalled(shared.settings.stall_timeout_s)
    response = Response(_pieces(shared, file, stop - start), status, headers)
    response.call_on_close(file.close)  # also when the body is never begun
    return response


def _known(shared: Services, file_id: str) -> FileRecord:
    """Raises ApiError 404 for an id that is unknown, expired, deleted or another tenant's."""
    record = shared.files.get(tenant_of_request(), file_id)
    if record is None:
        raise _no_such_file(file_id)
    return record


def _no_such_file(file_id: str) -> ApiError:
    return not_found(f"No such file: '{file_id[:200]}'.")


def _shown(record: FileRecord) -> Json:
    shown = msgspec.to_builtins(record) | {"object": "file"}
    del shown["tenant"]
    return dict(shown)


def _asked_span(record: FileRecord) -> tuple[int, int]:
    """The bytes asked for, as start and stop. Several ranges are answered with all, which is allowed."""
    asked, unchanged = request.range, request.if_range
    is_current = "If-Range" not in request.headers or unchanged.etag == record.id
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1 or not is_current:
        return 0, record.bytes
    begin = asked.ranges[0][0]
    if begin is not None and begin < -record.bytes:
        return 0, record.bytes  # of a file shorter than the end that is asked for, that end is all of it
    span = asked.range_for_length(record.bytes)
    if span is None or span[0] is None or span[1] is None:
        message = f"The file has {record.bytes} bytes, and none in the range asked for."
        headers = {"Content-Range": f"bytes */{record.bytes}"}
        raise ApiError(416, message, code="range_not_satisfiable", headers=headers)
    return span[0], span[1]


def _headers(record: FileRecord) -> dict[str, str]:
    """A name may hold anything, so it is only ever sent with its odd characters encoded."""
    return {
        "Content-Type": "application/octet-stream",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"attachment; filename=\"{record.id}\"; filename*=UTF-8''{quote(record.filename, '')}",
        "Accept-Ranges": "bytes",
        "ETag": f'"{record.id}"',
    }


def _opened(shared: Services, record: FileRecord, start: int) -> BinaryIO:
    def open_there() -> BinaryIO:
        file = shared.storage.open(record.id)
        file.seek(start)
        return file

    try:
        return shared.storage_threads.run(open_there)
    except FileNotFoundError:
        raise _no_such_file(record.id) from None  # it was deleted at this very moment


def _pieces(shared: Services, file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """An error here ends the connection: the client knows how much should have come."""
    while num_bytes > 0:
        piece = shared.storage_threads.run(lambda: file.read(min(_PIECE, num_bytes)))  # noqa: B023  run at once
        if not piece:
            raise EOFError("the storage has less of a file than was stored")
        num_bytes -= len(piece)
        yield piece


def _cut_off_stalled(after_s: float) -> None:
    client = request.environ.get("gunicorn.socket")
    if client is not None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(after_s * 1000))
