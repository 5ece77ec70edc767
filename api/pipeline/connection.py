"""The end of a connection whose request body was not read to its end."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class CloseWhenAsked:
    """WSGI middleware that makes gunicorn obey the header ``Connection: close`` of a response.

    gunicorn drops that header and would read the rest of an unread body as far as it gets, then wait for a next
    request. The `start_response` it hands to an application is a method of its response, which knows how to close.
    """

    def __init__(self, app: "WSGIApplication") -> None:
        self._app = app

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *rest: object) -> Callable[[bytes], object]:
            if ("connection", "close") in {(name.lower(), value.lower()) for name, value in headers}:
                _force_close(start_response)
            return start_response(status, headers, *rest)  # type: ignore[arg-type]

        return self._app(environ, start)


def _force_close(start_response: "StartResponse") -> None:
    server_response = getattr(start_response, "__self__", None)
    force_close = getattr(server_response, "force_close", None)
    if force_close is not None:
        force_close()
