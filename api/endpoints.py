"""Each endpoint's way from unchecked JSON to a job, the same for a live request and for a line of a batch.

`check` is told the service tier before template and tokenizer cost anything; everything here raises ApiError.
"""

from collections.abc import Callable

from api.errors import unsupported_parameter
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prepare import PreparedRequest, check_model, prepare_chat, prepare_completion
from api.pipeline.validate import validate_chat, validate_completion
from api.responses.turn import Turn, prepared_turn, validated_turn
from api.services import Services

Check = Callable[[str | None], None]


def prepared_chat(shared: Services, unchecked: UncheckedRequest, tenant: str, check: Check) -> PreparedRequest:
    valid = validate_chat(unchecked)
    check_model(valid.model, shared.model)
    check(valid.generation.service_tier)
    return prepare_chat(valid, shared.model, tenant, shared.settings)


def prepared_completion(shared: Services, unchecked: UncheckedRequest, tenant: str, check: Check) -> PreparedRequest:
    valid = validate_completion(unchecked)
    check_model(valid.model, shared.model)
    check(valid.generation.service_tier)
    return prepare_completion(valid, shared.model, tenant, shared.settings)


def prepared_response(
    shared: Services, unchecked: UncheckedRequest, tenant: str, check: Check, id_digits: str | None = None
) -> Turn:
    """`id_digits`: of the response to come, where they are not to be minted."""
    valid = validated_turn(shared, unchecked, id_digits)
    if valid.raw.generate is False:
        raise unsupported_parameter("generate", "true (a WebSocket takes false)")
    check(valid.raw.service_tier)
    return prepared_turn(shared, valid, tenant, {})
