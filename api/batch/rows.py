"""The rows of the output file and of the error file, and the stored parts they are gathered in."""

import secrets
from types import TracebackType
from typing import Any, Self

import msgspec

from api.batch.records import Batch, LineError, derived_digits
from api.batch.storage import Storage, Writing
from api.errors import ApiError

STOPPED = {
    "cancelled": LineError("batch_cancelled", "The batch was cancelled before this request was finished."),
    "expired": LineError("batch_expired", "This request was not finished within the batch's completion window."),
}


def answered_row(batch: Batch, number: int, custom_id: str, body: dict[str, Any]) -> bytes:
    return _row(batch, number, custom_id, response=_response(batch, number, 200, body))


def refused_row(batch: Batch, number: int, custom_id: str, error: ApiError) -> bytes:
    """Of a request that a live client would have been told `error` for."""
    return _row(batch, number, custom_id, response=_response(batch, number, error.status, error.body()))


def unanswered_row(batch: Batch, number: int, custom_id: str | None, error: LineError) -> bytes:
    """Of a line that never became a request, or whose request was not seen to its end."""
    return _row(batch, number, custom_id, error={"code": error.code, "message": error.message})


def _response(batch: Batch, number: int, status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"status_code": status, "request_id": derived_digits(batch.id, "request", number), "body": body}


def _row(
    batch: Batch, number: int, custom_id: str | None, response: Any = None, error: dict[str, str] | None = None
) -> bytes:
    row_id = "batch_req_" + derived_digits(batch.id, "row", number)
    return msgspec.json.encode({"id": row_id, "custom_id": custom_id, "response": response, "error": error}) + b"\n"


class Part:
    """Rows on their way into an object of their own; without any there is none, and its name stays empty.

    A context manager: rows whose block raised are gone. What is written but not committed to the batch afterwards is
    cleared away when the batch ends.
    """

    def __init__(self, storage: Storage, batch_id: str) -> None:
        self.name = ""
        self.num_rows = 0
        self._storage = storage
        self._batch_id = batch_id
        self._writing: Writing | None = None

    def add(self, row: bytes) -> None:
        """Raises StorageUnavailable."""
        if self._writing is None:
            self.name = f"{self._batch_id}/{secrets.token_hex(16)}"
            self._writing = self._storage.begin(self.name)
        self._writing.write(row)
        self.num_rows += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._writing is None:
            return
        if kind is not None:
            self._writing.abandon()
            return
        try:
            self._writing.commit()
        except BaseException:
            self._writing.abandon()
            raise
