"""Waiting for the broker's disk tells the truth, and a broker that keeps nothing breaks nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ops.ports import free_port
from tests.processes import start_broker
from worker.protocol.connection import connect
from worker.protocol.durability import wait_durable


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[redis.Redis]:
    """A broker without an append-only file."""
    port = free_port()
    broker = start_broker(tmp_path, port)
    client = connect(f"redis://127.0.0.1:{port}/0")
    client.config_set("appendonly", "no")
    yield client
    broker.kill()


def test_given_an_append_only_file_then_what_others_wrote_before_is_on_disk(client: redis.Redis, pool: str) -> None:
    client.set(pool, "written on some connection of the pool")

    assert wait_durable(client, pool)


def test_given_a_full_broker_then_its_disk_is_waited_for_all_the_same(client: redis.Redis, pool: str) -> None:
    client.config_set("maxmemory", 1)
    try:
        assert wait_durable(client, pool)
    finally:
        client.config_set("maxmemory", 0)


def test_given_none_then_that_is_told_and_no_error(forgetful: redis.Redis, pool: str) -> None:
    assert not wait_durable(forgetful, pool)


def test_given_no_broker_then_the_error_is_raised(pool: str) -> None:
    with pytest.raises(redis.ConnectionError):
        wait_durable(connect(f"redis://127.0.0.1:{free_port()}/0"), pool)
