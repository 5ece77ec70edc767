"""The embedded broker as `headrace broker` runs it."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ops.ports import free_port, is_listening
from tests.processes import RunningProcess, clean_environment


class Brokers:
    """Starts `headrace broker` processes that share a data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[RunningProcess] = []

    def start(self, port: int, **settings: str) -> RunningProcess:
        environ = clean_environment(
            **{"HEADRACE_BROKER_PORT": str(port), "HEADRACE_DATA": str(self.folder / "data"), **settings}
        )
        log = self.folder / f"broker-{len(self.started)}.log"
        self.started.append(RunningProcess([sys.executable, "-m", "ops.cli", "broker"], log, environ))
        return self.started[-1]

    def start_and_wait(self, port: int, **settings: str) -> tuple[RunningProcess, redis.Redis]:
        broker = self.start(port, **settings)
        broker.wait_until(lambda: is_listening("127.0.0.1", port), "the broker listens")
        return broker, redis.Redis(port=port, decode_responses=True)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    every = Brokers(tmp_path)
    yield every
    for broker in every.started:
        broker.kill()


def test_the_broker_is_durable_bounded_and_only_on_loopback(brokers: Brokers) -> None:
    _, client = brokers.start_and_wait(free_port(), HEADRACE_BROKER_MEMORY_MB="64")
    with client:
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("maxmemory") == {"maxmemory": str(64 * 1024 * 1024)}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("bind") == {"bind": "127.0.0.1"}
        limits = str(client.config_get("client-output-buffer-limit")["client-output-buffer-limit"])
        assert limits.endswith("pubsub 67108864 16777216 30")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_given_an_end_of_either_kind_then_the_next_broker_has_all_that_was_acknowledged(
    brokers: Brokers, number: signal.Signals
) -> None:
    port = free_port()
    broker, client = brokers.start_and_wait(port)
    with client:
        client.set("kept", "yes")
        os.kill(broker.pid, number)
        assert broker.wait() == (0 if number is signal.SIGTERM else -signal.SIGKILL)

        brokers.start_and_wait(port)

        assert client.get("kept") == "yes"


def test_given_a_port_in_use_then_it_says_so_and_fails(brokers: Brokers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        broker = brokers.start(port)

        assert broker.wait() == 1
    assert broker.log_text() == (
        f"headrace: port {port} is in use by another program: choose another with HEADRACE_BROKER_PORT, "
        "or name your own Redis or Valkey with HEADRACE_REDIS_URL\n"
    )


def test_given_a_folder_in_use_then_the_second_broker_refuses_it(brokers: Brokers) -> None:
    brokers.start_and_wait(free_port())
    second = brokers.start(free_port())

    assert second.wait() == 1
    assert second.log_text() == (
        f"headrace: another broker keeps its data in {brokers.folder}/data/broker: "
        "stop it, or choose another folder with HEADRACE_DATA\n"
    )


def test_given_a_folder_that_cannot_be_made_then_it_says_so_and_fails(brokers: Brokers) -> None:
    (brokers.folder / "file").touch()
    broker = brokers.start(free_port(), HEADRACE_DATA=str(brokers.folder / "file"))

    assert broker.wait() == 1
    assert "choose another with HEADRACE_DATA\n" in broker.log_text()
