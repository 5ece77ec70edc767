"""A short soak with fixed misfortunes, and a short spell of load; `make soak` has the long ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak import worker_load
from tests.soak.soak import SETTINGS, Plan, soak
from tests.soak.worker_load import TOLERATED_MIB, LoadPlan, load
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


@pytest.fixture
def loaded_stack(tmp_path: Path, tiny_model_folder: Path) -> Iterator[Stack]:
    with Stack(tmp_path, tiny_model_folder, **worker_load.SETTINGS) as stack:
        yield stack.start()


def test_given_64_mixed_requests_and_random_cancels_then_all_pages_come_back_and_memory_is_flat(
    loaded_stack: Stack,
) -> None:
    findings = load(loaded_stack, LoadPlan(seed=7, duration_s=20.0))
    assert findings.endings.keys() == {"succeeded", "cancelled"}
    assert findings.pages["held"] == 0
    assert findings.pages["free"] + findings.pages["cached"] == findings.num_pages
    assert findings.growth_mib < TOLERATED_MIB
