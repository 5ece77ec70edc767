"""What many tests share: a broker, models, and the whole of Headrace as real processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.cli import ROOT
from ops.ports import free_port
from tests.models import TINY_MODEL, make_tiny_model
from tests.processes import start_broker
from tests.stack import Stack
from worker.protocol.model_identity import default_model_folder, is_whole

NewStack = Callable[..., Stack]


@pytest.hookimpl(tryfirst=True)  # before the plugin that runs groups side by side looks for their names
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of one folder share their stacks and run one after another, also where folders run side by side."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(str(item.path.parent.relative_to(ROOT))))


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user() -> None:
    """Tests see defaults, whatever the user has set. The cache of prepared models is shared with real use."""
    for name in [name for name in os.environ if name.startswith("HEADRACE_") and name != "HEADRACE_CACHE"]:
        del os.environ[name]
    os.environ["HEADRACE_CONFIG"] = os.devnull


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all tests that keep to a pool of their own."""
    port = free_port()
    broker = start_broker(tmp_path_factory.mktemp("broker"), port)
    yield f"redis://127.0.0.1:{port}/0"
    broker.kill()


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The default model, prepared in the user's cache where it is not there yet."""
    folder = default_model_folder()
    if not is_whole(folder):
        subprocess.run([sys.executable, "-m", "ops.cli", "prepare"], check=True)
    return folder


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Path:
    """A random two-layer model with SmolLM2's tokenizer; served as ``tiny``."""
    folder = tmp_path_factory.mktemp("models") / TINY_MODEL
    make_tiny_model(folder, smollm2_folder)
    return folder


@pytest.fixture
def new_stack(request: pytest.FixtureRequest, tmp_path: Path, tiny_model_folder: Path) -> Iterator[NewStack]:
    """Makes Stacks with given HEADRACE_ settings, serving the tiny model; they end with the test."""
    stacks: list[Stack] = []

    def make(model: Path = tiny_model_folder, **settings: str) -> Stack:
        folder = tmp_path / f"stack-{len(stacks)}"
        folder.mkdir()
        stacks.append(Stack(folder, model, **settings))
        return stacks[-1]

    num_failed_before = request.session.testsfailed
    yield make
    for stack in stacks:
        stack.close()
        if request.session.testsfailed > num_failed_before:
            print(stack.logs())
