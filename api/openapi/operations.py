"""What each of the app's routes takes and gives, by the name Flask has for it."""

from dataclasses import dataclass
from typing import Any

from api.openapi import answers, batch_answers, file_answers, parameters, turn_answers
from api.openapi.parameters import Parameter
from api.pipeline.anthropic_request import RawCountRequest, RawMessagesRequest
from api.pipeline.batch_request import RawBatchRequest
from api.pipeline.embedding_request import RawEmbeddingRequest
from api.pipeline.raw import RawChatRequest, RawCompletionRequest
from api.pipeline.responses_request import RawResponseRequest
from api.pipeline.token_requests import RawDetokenize, RawTokenize


@dataclass(frozen=True)
class Operation:
    summary: str
    answer: Any = None  # a type, as JSON
    answer_text: str = ""  # the media type of an answer that is text
    request: Any = None  # a type
    required: tuple[str, ...] = ()  # fields of the body; the types leave that to checks that have better words for it
    more_fields: Any = None  # a type with further fields of the body
    form: Any = None  # a type, of a body that is no JSON but a multipart form
    parameters: tuple[Parameter, ...] = ()
    is_open: bool = False  # to whoever has no key
    upgrades: bool = False  # to a WebSocket
    has_ranges: bool = False  # of its answer, parts can be asked for
    may_conflict: bool = False  # with what is being done, though it has no body

    @property
    def types(self) -> list[Any]:
        return [kind for kind in (self.answer, self.request, self.more_fields, self.form) if kind is not None]


STREAM = "text/event-stream"
_GENERATION = (parameters.RESUME, parameters.IDEMPOTENCY)
_RESUME = Operation("Go on with a stream", answer_text=STREAM, parameters=(parameters.AFTER, parameters.LAST_EVENT))
_READY = Operation("Whether a request sent now would be served", answers.Ready, is_open=True)

OPERATIONS = {
    "chat_completions.create": Operation(
        "Answer a conversation",
        answers.ChatCompletion,
        STREAM,
        RawChatRequest,
        required=("model", "messages"),
        parameters=_GENERATION,
    ),
    "chat_completions.resume": _RESUME,
    "completions.create": Operation(
        "Go on with a text",
        answers.Completion,
        STREAM,
        RawCompletionRequest,
        required=("model", "prompt"),
        parameters=_GENERATION,
    ),
    "completions.resume": _RESUME,
    "batches.create": Operation(
        "Run the requests of a file while nobody else needs the workers",
        batch_answers.Batch,
        request=RawBatchRequest,
        required=("input_file_id", "endpoint", "completion_window"),
    ),
    "batches.list_batches": Operation(
        "Batches, the newest first",
        batch_answers.BatchList,
        parameters=(parameters.AFTER_ITEM, parameters.LIMIT),
    ),
    "batches.retrieve": Operation("A batch as it is now", batch_answers.Batch),
    "batches.cancel": Operation("Stop a batch; what it has answered is kept", batch_answers.Batch, may_conflict=True),
    "embeddings.create": Operation(
        "Refused: the models served here make no embeddings", request=RawEmbeddingRequest, required=("model", "input")
    ),
    "messages.create": Operation(
        "Answer a conversation, by Anthropic's API",
        turn_answers.AnswerMessage,
        STREAM,
        RawMessagesRequest,
        parameters=_GENERATION,
    ),
    "messages.count_tokens": Operation(
        "Count a conversation's tokens, by Anthropic's API", turn_answers.CountedTokens, request=RawCountRequest
    ),
    "responses.create": Operation(
        "Answer the next turn of a conversation",
        turn_answers.Response,
        STREAM,
        RawResponseRequest,
        required=("model",),
        parameters=(parameters.IDEMPOTENCY,),
    ),
    "responses.count_input_tokens": Operation(
        "Count the tokens a response would be given", answers.InputTokens, request=RawResponseRequest
    ),
    "responses.retrieve": Operation(
        "A stored response",
        turn_answers.Response,
        STREAM,
        parameters=(parameters.STREAM, parameters.STARTING_AFTER),
    ),
    "responses.cancel": Operation("End a background response", turn_answers.Response),
    "responses.delete": Operation("Forget a stored response", turn_answers.Deleted),
    "responses.input_items": Operation(
        "What the model was given",
        turn_answers.ItemList,
        parameters=(parameters.ORDER, parameters.AFTER_ITEM, parameters.LIMIT),
    ),
    "responses_websocket.websocket": Operation("Many turns on one connection", upgrades=True),
    "websocket.websocket": Operation(
        "Many requests on one connection", parameters=(parameters.API_KEY,), upgrades=True
    ),
    "models.list_models": Operation("The model served, under each of its names", answers.ModelList),
    "models.get_model": Operation("One model", answers.Model),
    "tokens.create_tokens": Operation(
        "The tokens of a prompt or of a conversation",
        answers.Tokens,
        request=RawTokenize,
        more_fields=RawChatRequest,
    ),
    "tokens.create_text": Operation(
        "The text of tokens", answers.DecodedText, request=RawDetokenize, required=("tokens",)
    ),
    "tokens.count_input_tokens": Operation(
        "Count a conversation's tokens", answers.InputTokens, request=RawChatRequest, required=("messages",)
    ),
    "files.create": Operation("Upload a file", file_answers.FileObject, form=file_answers.FileForm),
    "files.list_files": Operation(
        "The files there are",
        file_answers.FileList,
        parameters=(parameters.AFTER_FILE, parameters.FILES_LIMIT, parameters.ORDER, parameters.PURPOSE),
    ),
    "files.retrieve": Operation("A file", file_answers.FileObject),
    "files.delete": Operation("Delete a file", file_answers.DeletedFile, may_conflict=True),
    "files.content": Operation(
        "What is in a file",
        answer_text="application/octet-stream",
        parameters=(parameters.RANGE, parameters.IF_RANGE),
        has_ranges=True,
    ),
    "health.livez": Operation("Whether this process runs", answers.Alive, is_open=True),
    "health.readyz": _READY,
    "health.health": _READY,
    "health.metrics": Operation("What Prometheus reads", answer_text="text/plain", is_open=True),
    "openapi.document": Operation("This document", answers.Document, is_open=True),
}
