"""Errors of requests that were put in the words of a chat request: their fields as the endpoint's clients know them."""

import re
from collections.abc import Sequence

from api.errors import ApiError

Names = Sequence[tuple[str, str]]  # how a chat request's field begins, as a pattern, and what stands there instead


def in_own_words(error: ApiError, names: Names) -> ApiError:
    """The error with its field renamed by the first of `names` that fits."""
    if error.param is None:
        return error
    for theirs, own in names:
        if re.match(theirs, error.param):
            param = re.sub(theirs, own, error.param, count=1)
            message = re.sub(rf"(?<!\w){re.escape(error.param)}(?!\w)", param.replace("\\", r"\\"), error.message)
            return ApiError(error.status, message, error.type, param=param, code=error.code, headers=error.headers)
    return error
