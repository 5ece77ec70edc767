"""One turn of a conversation over the Responses API: from a request and what came before it to a job.

The same over HTTP, over a WebSocket and for a line of a batch.
"""

import secrets
from dataclasses import dataclass

from msgspec.structs import replace

from api.pipeline.parse import UncheckedRequest
from api.pipeline.prepare import PreparedRequest, check_model
from api.pipeline.responses_chat import prepare_response
from api.pipeline.responses_items import Item
from api.pipeline.responses_request import ValidResponseRequest, validate_response
from api.responses.known import Memory, Remembered, conversation, resolved
from api.responses.store import StoredResponse
from api.services import Services
from worker.protocol.job import RANDOM_HEX_DIGITS


@dataclass(frozen=True)
class Turn:
    """What is admitted, and what is kept of it when the request asks for that."""

    prepared: PreparedRequest
    stored: StoredResponse
    is_stored: bool
    conversation: tuple[Item, ...]  # all of it, up to what is asked now

    def remembered(self, output: list[Item]) -> Remembered:
        """The conversation with the answer, for turns to come on the same connection."""
        stored = (*self.stored.ancestors, self.prepared.job.id) if self.is_stored else ()
        return Remembered((*self.conversation, *output), stored)


def validated_turn(shared: Services, unchecked: UncheckedRequest, id_digits: str | None = None) -> ValidResponseRequest:
    """All checks that need neither template nor tokenizer. Raises ApiError."""
    valid = validate_response(unchecked, id_digits or secrets.token_hex(RANDOM_HEX_DIGITS // 2))
    check_model(valid.model, shared.model)
    return valid


def prepared_turn(shared: Services, valid: ValidResponseRequest, tenant: str, memory: Memory) -> Turn:
    """The turn after those it goes on from, which are in `memory` or kept in Redis. Raises ApiError."""
    earlier, ancestors = conversation(shared, tenant, valid.raw.previous_response_id, memory)
    items = resolved(shared, tenant, valid.items, earlier)
    all_items = (*earlier, *items)
    prepared = prepare_response(valid, all_items, shared.model, tenant, shared.settings)
    if valid.is_background:
        prepared = PreparedRequest(prepared.job, replace(prepared.view, kept_ms=shared.responses.ttl_ms))
    if valid.raw.generate is False:
        prepared = _warming_up(prepared)
    # What goes on from a response that is not stored has to keep the whole conversation itself.
    own = items if ancestors or not earlier else all_items
    return Turn(prepared, StoredResponse(tenant, prepared.view, own, ancestors), valid.is_stored, all_items)


def _warming_up(prepared: PreparedRequest) -> PreparedRequest:
    """The prompt is worked on, so that its pages are there when the conversation goes on."""
    sampling = replace(prepared.job.sampling, max_tokens=0)
    job = replace(prepared.job, sampling=sampling, expected_tokens=0)
    return PreparedRequest(job, replace(prepared.view, is_warm_up=True))
