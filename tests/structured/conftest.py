"""One stack that serves the default model, with the official SDK in front of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Iterator[Stack]:
    settings = {"HEADRACE_THREADS": "2", "HEADRACE_DTYPE": "auto"}
    with Stack(tmp_path_factory.mktemp("structured"), smollm2_folder, **settings) as stack:
        yield stack.start()


@pytest.fixture(scope="session")
def client(stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client
