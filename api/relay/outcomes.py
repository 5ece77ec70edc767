"""What the end of a job means to its client: the one mapping from terminal events to errors."""

from api import errors
from api.errors import NO_RETRY, SERVER_ERROR, ApiError
from worker.protocol.event import Terminal

_HOPELESS = ("worker_lost", "unreadable")  # it was tried as often as makes sense, or no worker knows how to


def error_of(terminal: Terminal) -> ApiError | None:
    """None when the job succeeded."""
    if terminal.state == "succeeded":
        return None
    if terminal.state == "expired":
        return ApiError(504, terminal.message, "timeout_error", code="timeout", headers=NO_RETRY)
    if terminal.state == "cancelled":
        return ApiError(409, terminal.message, code="cancelled", headers=NO_RETRY)
    if terminal.code == "invalid_request":
        return errors.bad_request(terminal.message)
    if terminal.code == "engine_error":
        # What exactly went wrong stands in the worker's log, under the job's id; it is no client's business.
        return ApiError(500, "The model failed while it worked on this request.", SERVER_ERROR, code=terminal.code)
    headers = NO_RETRY if terminal.code in _HOPELESS else None
    return ApiError(500, terminal.message, SERVER_ERROR, code=terminal.code or "server_error", headers=headers)


def job_lost() -> ApiError:
    """The broker lost a started job (it was emptied, or failed over without its last writes)."""
    return ApiError(500, "The server lost this request while it was running.", SERVER_ERROR, code="job_lost")
