"""Responses that were made earlier, perhaps by another process: their answers, and conversations built of them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from api.errors import ApiError
from api.pipeline.admission import broker_away
from api.pipeline.responses_items import Item
from api.relay.dialects.responses import ResponsesDialect
from api.responses.store import KeptResponse
from api.services import Services
from worker.protocol.event import Event, Terminal
from worker.protocol.job import ENDPOINT_PREFIXES

_ITEM_ID = re.compile(r"(?:msg|fc|fco|rs)_([0-9a-f]{32})-(?:in-)?\d+")
_LOST = Terminal("cancelled", "abandoned", "Nobody was waiting for this response any more.")
MAX_RESPONSES = 1000  # of one conversation, and what they may take as they are kept
MAX_CONVERSATION_BYTES = 16 << 20
HAS_ENDED = ("completed", "incomplete", "failed", "cancelled")


@dataclass(frozen=True)
class Remembered:
    """A conversation up to the end of one response, whether that is stored or not."""

    items: tuple[Item, ...]
    ancestors: tuple[str, ...]  # the responses that make it up, if all of them are stored; else none


Memory = Mapping[str, Remembered]  # by the id of the last response: what one connection remembers beside the store


def known_response(shared: Services, response_id: str, tenant: str) -> KeptResponse:
    """Raises ApiError 404 for an id that is unknown, expired, deleted or another tenant's."""
    kept = _load(shared, [response_id], tenant).get(response_id)
    if kept is None:
        raise ApiError(404, f"Response with id '{response_id[:200]}' not found.", code="not_found")
    return kept


def conversation(
    shared: Services, tenant: str, previous_id: str | None, memory: Memory
) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The items of a response and of all before it, and the ids of these responses, if all are stored.

    Both have the oldest first. Raises ApiError 400 when one of them is not known any more or is still in progress.
    """
    if previous_id is None:
        return (), ()
    if previous_id in memory:
        _check_length(shared, memory[previous_id].ancestors)
        return memory[previous_id].items, memory[previous_id].ancestors
    last = _load(shared, [previous_id], tenant).get(previous_id)
    if last is None:
        raise _previous_not_found(previous_id)
    ids = (*last.stored.ancestors, previous_id)
    _check_length(shared, ids)
    known = _load(shared, ids, tenant)
    items: list[Item] = []
    for response_id in ids:
        if response_id not in known:
            raise _previous_not_found(previous_id)
        answer = answer_of(shared, response_id, known[response_id])
        if answer["status"] not in HAS_ENDED:
            message = f"Previous response with id '{response_id}' has not ended yet."
            raise ApiError(400, message, param="previous_response_id", code="previous_response_in_progress")
        items += (*known[response_id].stored.items, *answer["output"])
    return tuple(items), ids


def _check_length(shared: Services, ids: tuple[str, ...]) -> None:
    """Raises ApiError 400 for a conversation of which each further turn would cost too much to load."""
    if len(ids) < MAX_RESPONSES and shared.responses.num_bytes(ids) < MAX_CONVERSATION_BYTES:
        return
    message = (
        f"The conversation is too long to go on with 'previous_response_id': it may have {MAX_RESPONSES} responses of "
        f"{MAX_CONVERSATION_BYTES} bytes in all. Send what matters of it as 'input'."
    )
    raise ApiError(400, message, param="previous_response_id", code="conversation_too_long")


def input_of(shared: Services, tenant: str, kept: KeptResponse) -> Iterator[Item]:
    """All that the model was given, the oldest first; of earlier turns what is still kept."""
    known = _load(shared, kept.stored.ancestors, tenant)
    for response_id in kept.stored.ancestors:
        yield from _items_of(shared, response_id, known.get(response_id))
    yield from kept.stored.items


def resolved(shared: Services, tenant: str, items: Iterable[Item], earlier: Iterable[Item]) -> tuple[Item, ...]:
    """The items with every reference replaced by the item it names. Raises ApiError 404."""
    found = {item["id"]: item for item in earlier}
    return tuple(
        item if item["type"] != "item_reference" else _referred(shared, tenant, item["id"], found) for item in items
    )


def _referred(shared: Services, tenant: str, item_id: str, found: dict[str, Item]) -> Item:
    """`found` learns all items of each response that is looked up."""
    named = _ITEM_ID.fullmatch(item_id)
    if item_id not in found and named is not None:
        response_id = f"{ENDPOINT_PREFIXES['responses']}{shared.model.name}-{named[1]}"
        kept = _load(shared, [response_id], tenant).get(response_id)
        found |= {item["id"]: item for item in _items_of(shared, response_id, kept)}
    if item_id not in found:
        raise ApiError(404, f"Item with id '{item_id[:200]}' not found.", param="input", code="not_found")
    return found[item_id]


def _items_of(shared: Services, response_id: str, kept: KeptResponse | None) -> Iterator[Item]:
    if kept is not None:
        yield from kept.stored.items
        yield from answer_of(shared, response_id, kept)["output"]


def answer_of(shared: Services, response_id: str, kept: KeptResponse) -> dict[str, Any]:
    """The answer that is kept, else as much as the job's events tell; what has ended is kept from then on."""
    if kept.answer is not None:
        return kept.answer
    view = kept.stored.view
    events = _events_of(shared, response_id)
    answer = ResponsesDialect(response_id, view).whole(events)
    if answer["status"] in HAS_ENDED:
        shared.responses.keep_answer(response_id, answer)
    return answer


def _events_of(shared: Services, response_id: str) -> list[Event]:
    """Of a job that is not kept any more: that it was given up. The answers of others were kept when they ended."""
    with broker_asked(response_id):
        events = shared.queue.replay(response_id, 0)
        return events if events or shared.queue.describe(response_id) else [_LOST]


@contextmanager
def broker_asked(response_id: str) -> Iterator[None]:
    """Raises ApiError 503 in place of the broker's errors."""
    try:
        yield
    except redis.RedisError as error:
        raise broker_away(response_id, error) from error


def _load(shared: Services, ids: Iterable[str], tenant: str) -> dict[str, KeptResponse]:
    found = shared.responses.load(ids)
    return {response_id: kept for response_id, kept in found.items() if kept.stored.tenant == tenant}


def _previous_not_found(response_id: str) -> ApiError:
    message = f"Previous response with id '{response_id[:200]}' not found."
    return ApiError(400, message, param="previous_response_id", code="previous_response_not_found")
