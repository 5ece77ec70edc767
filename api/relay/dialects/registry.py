"""The dialect of each endpoint."""

from collections.abc import Callable

from api.relay.dialects.chat import ChatDialect
from api.relay.dialects.completions import CompletionDialect
from api.relay.dialects.interface import Dialect
from api.relay.dialects.messages import MessagesDialect
from api.relay.dialects.responses import ResponsesDialect
from api.stream_view import StreamView

DIALECTS: dict[str, Callable[[str, StreamView], Dialect]] = {
    "chat.completions": ChatDialect,
    "completions": CompletionDialect,
    "responses": ResponsesDialect,
    "messages": MessagesDialect,
}


def dialect_of(job_id: str, view: StreamView) -> Dialect:
    return DIALECTS[view.endpoint](job_id, view)
