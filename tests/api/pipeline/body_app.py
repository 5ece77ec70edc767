"""An app for gunicorn that answers with the size of the body it read."""

from flask import Flask, request

from api.errors import install_error_handlers
from api.pipeline.body import read_body
from api.pipeline.connection import CloseWhenAsked

MAX_BYTES = 100_000
TIMEOUT_S = 1.0

app = Flask(__name__)
install_error_handlers(app)


@app.post("/size")
def size() -> dict[str, int]:
    return {"size": len(read_body(request.environ, MAX_BYTES, TIMEOUT_S))}


@app.post("/unread")
def unread() -> dict[str, str]:
    return {"body": "left where it was"}


application = CloseWhenAsked(app.wsgi_app)
