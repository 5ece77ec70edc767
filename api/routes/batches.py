"""POST /v1/batches, and what can be asked about a batch. Its life is led elsewhere: see api/batch."""

import logging
import time
from typing import Any

from flask import Blueprint, request

from api.batch.records import ENDPOINTS, Batch, Order, is_batch_id, mint_batch_id
from api.batch.store import NoSuchBatch
from api.errors import NO_RETRY, ApiError, bad_request, not_found
from api.pipeline.batch_request import ValidBatchRequest, validate_batch
from api.routes.generation import read_request
from api.routes.paging import limit_asked, page_of
from api.routes.stores import stores_asked
from api.services import Services, services, tenant_of_request

log = logging.getLogger("headrace.api")

_HOLD_MARGIN_S = 24 * 3600  # a batch reads its file until its time is over, and a little longer

routes = Blueprint("batches", __name__)


@routes.post("/v1/batches")
def create() -> dict[str, Any]:
    shared = services()
    unchecked, tenant = read_request()
    valid = validate_batch(unchecked, tuple(ENDPOINTS))
    order = Order(
        id=mint_batch_id(),
        tenant=tenant,
        endpoint=valid.endpoint,
        input_file_id=valid.input_file_id,
        completion_window=valid.completion_window,
        window_s=valid.window_s,
        metadata=valid.metadata,
        output_ttl_s=valid.output_ttl_s,
    )
    with stores_asked():
        _hold_file(shared, order, valid)
        shared.batches.create(order)
        shared.queue.wait_durable()
    log.info("batch created", extra={"batch_id": order.id, "tenant": tenant, "endpoint": order.endpoint})
    return _known(shared, order.id, tenant).shown()


@routes.get("/v1/batches")
def list_batches() -> dict[str, Any]:
    """The tenant's, the newest first."""
    shared, tenant = services(), tenant_of_request()
    limit = limit_asked()
    try:
        with stores_asked():
            batches, has_more = shared.batches.page(tenant, request.args.get("after"), limit)
    except NoSuchBatch as error:
        raise bad_request("'after' must be the id of one of your batches.", "after") from error
    return page_of([batch.shown() for batch in batches], has_more=has_more)


@routes.get("/v1/batches/<batch_id>")
def retrieve(batch_id: str) -> dict[str, Any]:
    return _known(services(), batch_id, tenant_of_request()).shown()


@routes.post("/v1/batches/<batch_id>/cancel")
def cancel(batch_id: str) -> dict[str, Any]:
    """What has been answered by then is kept."""
    shared, tenant = services(), tenant_of_request()
    _known(shared, batch_id, tenant)
    with stores_asked():
        before = shared.batches.stop(batch_id, "cancelled")
        shared.queue.wait_durable()
    if before not in ("validating", "in_progress", "cancelling"):
        raise ApiError(409, f"Cannot cancel a batch with status '{before}'.", headers=NO_RETRY)
    return _known(shared, batch_id, tenant).shown()


def _hold_file(shared: Services, order: Order, valid: ValidBatchRequest) -> None:
    """It cannot be deleted from now on. Raises ApiError 404, or 400 for a file that is no batch's."""
    until_s = time.time() + valid.window_s + _HOLD_MARGIN_S
    file = shared.files.hold(order.tenant, order.input_file_id, order.id, until_s)
    if file is None:
        message = f"No such File object: {order.input_file_id[:200]}"
        raise ApiError(404, message, param="input_file_id", code="not_found")
    if file.purpose != "batch":
        shared.files.release(file.id, order.id)
        message = f"The file's purpose is '{file.purpose}'; a batch needs one uploaded with the purpose 'batch'."
        raise bad_request(message, "input_file_id")


def _known(shared: Services, batch_id: str, tenant: str) -> Batch:
    """Raises ApiError 404 for an id that is unknown or another tenant's."""
    with stores_asked():
        batch = shared.batches.load(batch_id) if is_batch_id(batch_id) else None
    if batch is None or batch.order.tenant != tenant:
        raise not_found(f"No batch found with id '{batch_id[:200]}'.")
    return batch
