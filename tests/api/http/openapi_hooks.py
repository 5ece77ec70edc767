"""What schemathesis is told of the API beyond its document, so that requests reach the model and end soon."""

import os
from typing import Any

import schemathesis
from schemathesis import Case, HookContext

SERVED_MODEL = "HEADRACE_TESTED_MODEL"  # the variable that names it
LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}
FEW_TOKENS = 3
FEW_CHOICES = 4
MAX_CHOICES = 128  # more are wrong
ENOUGH_S = 20.0  # a request that asks for less time is rightly told that it ran out


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:  # noqa: ARG001  as it is called
    """What is right stays right, only small; what is wrong stays as it is."""
    body: Any = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str):
        body["model"] = os.environ[SERVED_MODEL]
    limit = LIMITS.get(case.path)
    if limit is not None and (body.get(limit) is None or _is_large(body[limit], FEW_TOKENS)):
        body[limit] = FEW_TOKENS
    if _is_large(body.get("n"), FEW_CHOICES) and body["n"] <= MAX_CHOICES:
        body["n"] = FEW_CHOICES
    if type(body.get("timeout")) in (int, float) and 0 < body["timeout"] < ENOUGH_S:
        body["timeout"] = ENOUGH_S


def _is_large(value: Any, few: int) -> bool:
    return type(value) is int and value > few
