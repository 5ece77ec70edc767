"""Parameters of requests beside their bodies: in the query and in headers."""

from dataclasses import dataclass
from typing import Any, Literal

CHUNK_NUMBER = {"type": "string", "pattern": "^[0-9]{1,11}$"}


@dataclass(frozen=True)
class Parameter:
    name: str
    place: Literal["query", "header", "path"]
    schema: dict[str, Any]
    description: str

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "in": self.place,
            "required": self.place == "path",
            "schema": self.schema,
            "description": self.description,
        }


RESUME = Parameter(
    "Headrace-Resume",
    "header",
    {"enum": ["true", "false"]},
    "Number the chunks, so that the stream can be gone on with.",
)
IDEMPOTENCY = Parameter(
    "Idempotency-Key", "header", {"type": "string", "maxLength": 256}, "Repeats under one key are answered by one job."
)
AFTER = Parameter("after", "query", CHUNK_NUMBER, "The number of the last chunk received.")
LAST_EVENT = Parameter("Last-Event-ID", "header", CHUNK_NUMBER, "As 'after', which comes first.")
STREAM = Parameter("stream", "query", {"enum": ["true", "false"]}, "The events again, instead of the whole response.")
STARTING_AFTER = Parameter(
    "starting_after", "query", CHUNK_NUMBER, "The sequence number of the last event received; only with 'stream'."
)
ORDER = Parameter("order", "query", {"enum": ["asc", "desc"]}, "By time; the latest come first unless told otherwise.")
AFTER_ITEM = Parameter("after", "query", {"type": "string"}, "The id of the item that the page shall follow.")
LIMIT = Parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 100}, "Items in the page.")
API_KEY = Parameter("api_key", "query", {"type": "string"}, "The key: browsers cannot set headers on a WebSocket.")
AFTER_FILE = Parameter("after", "query", {"type": "string"}, "The id of the file that the page shall follow.")
FILES_LIMIT = Parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 10_000}, "Files in the page.")
PURPOSE = Parameter("purpose", "query", {"enum": ["batch", "batch_output"]}, "Files of this purpose alone.")
RANGE = Parameter("Range", "header", {"type": "string"}, "The bytes wanted, as 'bytes=0-99'; several ranges are all.")
IF_RANGE = Parameter("If-Range", "header", {"type": "string"}, "The ETag of the file that the range is of.")
