"""Lists that are given out page by page: what a query may ask, and what a page looks like."""

from typing import Any

from flask import request

from api.errors import bad_request

MAX_LISTED = 100
_DEFAULT_LISTED = 20


def choice_asked(param: str, *choices: str) -> str:
    """One of them; the first unless the query says otherwise. Raises ApiError 400."""
    chosen = request.args.get(param, choices[0])
    if chosen not in choices:
        raise bad_request(f"'{param}' must be one of {', '.join(filter(None, choices))}.", param)
    return chosen


def limit_asked(default: int = _DEFAULT_LISTED, most: int = MAX_LISTED) -> int:
    """Entries in the page. Raises ApiError 400."""
    limit = request.args.get("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise bad_request(f"'limit' must be a number from 1 to {most}.", "limit")
    return int(limit)


def page_of(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Each entry has an id."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }
