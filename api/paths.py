"""Request paths as clients join them: a base URL that ends in a slash and a path that begins with one."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class SingleSlashes:
    """WSGI middleware that takes several slashes for one. Many clients would follow a redirect's POST with a GET."""

    def __init__(self, app: "WSGIApplication") -> None:
        self._app = app

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        environ["PATH_INFO"] = re.sub("/{2,}", "/", environ.get("PATH_INFO", ""))
        return self._app(environ, start_response)
