"""The four forms of a completion's prompt, checked."""

from typing import Any

from api.errors import bad_request

MAX_PROMPTS = 128

Prompt = str | tuple[int, ...]  # text, or token ids


def check_prompts(raw: str | list[Any] | None, param: str = "prompt") -> tuple[Prompt, ...]:
    """A string, a list of strings, a list of token ids or a list of such lists, in the order of the choices.

    Raises ApiError 400. How large a token id may be depends on the model and is checked later.
    """
    if raw is None:
        raise bad_request(f"You must provide the parameter '{param}'.", param)
    if isinstance(raw, str):
        return (raw,)
    if not raw:
        raise bad_request(f"'{param}' must not be an empty list.", param)
    if _is_number(raw[0]):
        return (_check_token_ids(raw, param),)
    if len(raw) > MAX_PROMPTS:
        raise bad_request(f"'{param}' may hold at most {MAX_PROMPTS} prompts, but it holds {len(raw)}.", param)
    kind = str if isinstance(raw[0], str) else list
    return tuple(_check_prompt(item, kind, f"{param}[{i}]") for i, item in enumerate(raw))


def _check_prompt(item: Any, kind: type, param: str) -> Prompt:
    if isinstance(item, str) and kind is str:
        return item
    if isinstance(item, list) and kind is list:
        return _check_token_ids(item, param)
    raise bad_request(f"'{param}' must be {'a string' if kind is str else 'a list of token ids'}.", param)


def _check_token_ids(ids: list[Any], param: str) -> tuple[int, ...]:
    if not ids:
        raise bad_request(f"'{param}' must not be empty.", param)
    if set(map(type, ids)) != {int} or min(ids) < 0:
        i = next(i for i, token_id in enumerate(ids) if type(token_id) is not int or token_id < 0)
        raise bad_request(f"'{param}[{i}]' must be a token id, a whole number of at least 0.", f"{param}[{i}]")
    return tuple(ids)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
