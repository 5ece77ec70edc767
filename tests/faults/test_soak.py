"""A short soak with fixed misfortunes; `make soak` is the long one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.soak import SETTINGS, Plan, soak
from tests.stack import Stack


@pytest.fixture
def soaked_stack(tmp_path: Path, tiny_model_folder: Path) -> Iterator[Stack]:
    with Stack(tmp_path, tiny_model_folder, **SETTINGS) as stack:
        yield stack.start(num_webs=2, num_workers=2)


def test_given_random_kills_and_pauses_then_every_request_ends_honestly_and_nothing_stays_behind(
    soaked_stack: Stack,
) -> None:
    findings = soak(soaked_stack, Plan(seed=3, duration_s=8.0, num_clients=16))
    assert findings.faults == []
    assert findings.endings["exact"] > 0
    assert findings.strikes.total() > 0
