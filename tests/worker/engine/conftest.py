"""Tiny networks are computed by one thread: more only wait for each other."""

from collections.abc import Iterator

import pytest
import torch

from tests.worker.engine.draws import Draws
from tests.worker.kernels.native import NATIVE_NAMES, kernels_of


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["torch", *NATIVE_NAMES])
def draws(request: pytest.FixtureRequest) -> Draws:
    """The sampler, over plain torch and over the kernels of each instruction set that this processor has."""
    return Draws(None if request.param == "torch" else kernels_of(request.param))
