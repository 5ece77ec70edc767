"""The input items of a Responses request: checked, and in the one form in which they are kept and shown."""

from collections.abc import Callable
from typing import Any

import msgspec

from api.errors import ApiError, bad_request

Item = dict[str, Any]  # as the API shows it, id and status included

ROLES = ("user", "assistant", "system", "developer")
MAX_ITEM_ID_CHARS = 256


class RawPart(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class RawItem(msgspec.Struct):
    """The fields of every kind of item that is served; each kind uses some."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[RawPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[RawPart] | None = None
    summary: list[RawPart] | None = None


def check_input(raw: str | list[RawItem] | None, mint_id: Callable[[str, int], str]) -> tuple[Item, ...]:
    """Every item in full; an ``item_reference`` stays one, since only the store can resolve it.

    `raw` has passed `refuse_unserved_items`. `mint_id` makes the id of an item that brings none, out of its prefix and
    place. Raises ApiError 400.
    """
    if raw is None:
        return ()
    if isinstance(raw, str):
        return (_message("user", [_input_text(raw)], mint_id("msg", 0)),)
    return tuple(_with_id(_check_item(item, f"input[{i}]"), item, i, mint_id) for i, item in enumerate(raw))


def refuse_unserved_items(raw: Any) -> None:
    """Raises ApiError 400 for the first item of a kind that is not served, whatever else it holds."""
    for i, item in enumerate(raw if isinstance(raw, list) else ()):
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in _CHECKS:
            raise _not_served(f"Items of type '{kind[:60]}' are", f"input[{i}].type", _CHECKS)


def _check_item(raw: RawItem, param: str) -> Item:
    if raw.id is not None and not 0 < len(raw.id) <= MAX_ITEM_ID_CHARS:
        raise bad_request(f"'{param}.id' must have 1 to {MAX_ITEM_ID_CHARS} characters.", f"{param}.id")
    _, check = _CHECKS[raw.type or ("message" if raw.role is not None else "item_reference")]
    return check(raw, param)


def _with_id(item: Item, raw: RawItem, place: int, mint_id: Callable[[str, int], str]) -> Item:
    item["id"] = raw.id or mint_id(_CHECKS[item["type"]][0], place)
    return item


def _check_message(raw: RawItem, param: str) -> Item:
    if raw.role not in ROLES:
        problem = "is missing" if raw.role is None else f"'{raw.role[:40]}' is not one of {', '.join(ROLES)}"
        raise bad_request(f"The role of '{param}' {problem}.", f"{param}.role")
    if raw.content is None:
        raise bad_request(f"'{param}.content' is missing.", f"{param}.content")
    accepted = ("output_text", "refusal", "input_text") if raw.role == "assistant" else ("input_text",)
    parts = _check_parts(raw.content, f"{param}.content", accepted)
    return _message(raw.role, [_as_said_by(raw.role, part) for part in parts], "")


def _check_call(raw: RawItem, param: str) -> Item:
    return {
        "type": "function_call",
        "id": "",
        "call_id": _required(raw.call_id, f"{param}.call_id"),
        "name": _required(raw.name, f"{param}.name"),
        "arguments": raw.arguments or "{}",
        "status": "completed",
    }


def _check_call_output(raw: RawItem, param: str) -> Item:
    if raw.output is None:
        raise bad_request(f"'{param}.output' is missing.", f"{param}.output")
    if isinstance(raw.output, str):
        output: str | list[Item] = raw.output
    else:
        output = _check_parts(raw.output, f"{param}.output", ("input_text",))
    call_id = _required(raw.call_id, f"{param}.call_id")
    return {"type": "function_call_output", "id": "", "call_id": call_id, "output": output, "status": "completed"}


def _check_reasoning(raw: RawItem, param: str) -> Item:
    content = [] if raw.content is None else raw.content
    return {
        "type": "reasoning",
        "id": "",
        "summary": _check_parts(raw.summary or [], f"{param}.summary", ("summary_text",)),
        "content": _check_parts(content, f"{param}.content", ("reasoning_text",)),
        "status": "completed",
    }


def _check_reference(raw: RawItem, param: str) -> Item:
    return {"type": "item_reference", "id": _required(raw.id, f"{param}.id")}


_CHECKS: dict[str, tuple[str, Callable[[RawItem, str], Item]]] = {
    "message": ("msg", _check_message),
    "function_call": ("fc", _check_call),
    "function_call_output": ("fco", _check_call_output),
    "reasoning": ("rs", _check_reasoning),
    "item_reference": ("", _check_reference),
}


def _check_parts(raw: str | list[RawPart], param: str, accepted: tuple[str, ...]) -> list[Item]:
    if isinstance(raw, str):
        return [{"type": accepted[0], "text": raw}]
    return [_check_part(part, f"{param}[{i}]", accepted) for i, part in enumerate(raw)]


def _check_part(part: RawPart, param: str, accepted: tuple[str, ...]) -> Item:
    if part.type not in accepted:
        kind = "without a type" if part.type is None else f"of type '{part.type[:60]}'"
        raise _not_served(f"Parts {kind} are", f"{param}.type", accepted)
    field = "refusal" if part.type == "refusal" else "text"
    text = part.refusal if field == "refusal" else part.text
    if text is None:
        raise bad_request(f"'{param}.{field}' is missing.", f"{param}.{field}")
    return {"type": part.type, field: text}


def _as_said_by(role: str, part: Item) -> Item:
    if role != "assistant" or part["type"] == "refusal":
        return part
    return {"type": "output_text", "text": part["text"], "annotations": [], "logprobs": []}


def _message(role: str, parts: list[Item], item_id: str) -> Item:
    return {"type": "message", "id": item_id, "role": role, "content": parts, "status": "completed"}


def _input_text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _required(text: str | None, param: str) -> str:
    if not text:
        raise bad_request(f"'{param}' is missing.", param)
    return text


def _not_served(what: str, param: str, accepted: Any) -> ApiError:
    return bad_request(f"{what} not supported here; use {', '.join(accepted)}.", param, "unsupported_parameter")
