"""What the tests of refusals share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from api.errors import ApiError


@dataclass
class Refusal:
    error: ApiError | None = None

    @property
    def facts(self) -> tuple[int, str | None, str | None]:
        """(status, param, code)"""
        assert self.error is not None
        return self.error.status, self.error.param, self.error.code


@contextmanager
def refusal() -> Iterator[Refusal]:
    """Passes when the block raises an ApiError, which it keeps."""
    caught = Refusal()
    with pytest.raises(ApiError) as info:
        yield caught
    caught.error = info.value


def facts_of(call: Callable[[], Any]) -> tuple[int, str | None, str | None]:
    """(status, param, code) of the ApiError that `call` raises."""
    with refusal() as refused:
        call()
    return refused.facts
