"""One stack, of the reciting model, whose answers are known; tools and agents meet it as they would OpenAI."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.api.http.reciter import RECITER, Recital, make_reciter
from tests.stack import Stack


@pytest.fixture(scope="session")
def recital(smollm2_folder: Path) -> Recital:
    return Recital.load(smollm2_folder)


@pytest.fixture(scope="session")
def base_url(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Iterator[str]:
    """What every tool takes for OpenAI's address."""
    folder = tmp_path_factory.mktemp("conformance")
    make_reciter(folder / RECITER, smollm2_folder)
    with Stack(folder, folder / RECITER) as stack:
        yield f"{stack.start().url}/v1"


@pytest.fixture
def client(base_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Runs what is awaited in one event loop per test, in which clients are closed too."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def async_client(base_url: str, runner: asyncio.Runner) -> Iterator[AsyncOpenAI]:
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    yield client
    runner.run(client.close())
