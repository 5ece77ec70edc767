"""`headrace workers` and `headrace doctor` where the broker is elsewhere, away, or does not let us in."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from ops.cli import main
from ops.ports import free_port
from tests.processes import start_broker

PASSWORD = "s3cret"
BAD_URL = "expected a URL such as redis://:PASSWORD@HOST:6379/0, with / in a password written as %2F"
COMMANDS = [("doctor",), ("workers", "ping")]

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the model is read but its name."""
    monkeypatch.setenv("HEADRACE_MODEL", str(tmp_path))
    monkeypatch.setenv("HEADRACE_MODEL_NAME", "any")


@pytest.fixture(scope="module")
def locked_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker that asks for a password."""
    port = free_port()
    broker = start_broker(tmp_path_factory.mktemp("locked"), port)
    redis.Redis(port=port).config_set("requirepass", PASSWORD)
    yield port
    broker.kill()


def refused(printed: Printed, *command: str) -> str:
    """What a command says that fails, which is one line and all it prints."""
    assert main(list(command)) == 1
    out, err = printed.readouterr()
    assert (out, err.count("\n"), PASSWORD in err) == ("", 1, False)
    return err.removeprefix("headrace: ").removesuffix("\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_given_a_broker_that_is_away_then_one_line_names_the_setting(
    command: tuple[str, ...], capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", f"redis://:{PASSWORD}@127.0.0.1:1/0")

    assert refused(capsys, *command) == "HEADRACE_REDIS_URL: Error 111 connecting to 127.0.0.1:1. Connection refused."


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("", "Authentication required."),
        (f":not-{PASSWORD}@", "invalid username-password pair or user is disabled."),
    ],
)
def test_given_a_broker_that_refuses_the_password_then_it_says_so(
    locked_port: int,
    command: tuple[str, ...],
    user: str,
    reason: str,
    capsys: Printed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", f"redis://{user}127.0.0.1:{locked_port}/0")

    assert refused(capsys, *command) == f"HEADRACE_REDIS_URL: {reason}"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("url", [f"redis://:{PASSWORD}/x@127.0.0.1:1/0", f"redis://:{PASSWORD}@127.0.0.1:many/0"])
def test_given_a_url_that_cannot_be_understood_then_no_part_of_it_is_repeated(
    command: tuple[str, ...], url: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", url)

    assert refused(capsys, *command) == f"HEADRACE_REDIS_URL: {BAD_URL}"


def test_given_a_scheme_that_nobody_knows_then_it_is_named(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", "foo://127.0.0.1")

    assert refused(capsys, "workers", "ping") == "HEADRACE_REDIS_URL: No such transport: foo"
    assert refused(capsys, "doctor") == f"HEADRACE_REDIS_URL: {BAD_URL}"


def test_given_a_broker_for_control_messages_then_it_is_the_one_named(
    broker_url: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", broker_url)
    monkeypatch.setenv("HEADRACE_CELERY_BROKER_URL", "foo://127.0.0.1")

    assert refused(capsys, "workers", "ping") == "HEADRACE_CELERY_BROKER_URL: No such transport: foo"
    assert main(["doctor"]) == 0


def test_given_no_url_then_the_embedded_broker_is_found_at_its_port(
    broker_url: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BROKER_PORT", str(urlsplit(broker_url).port))

    assert main(["doctor"]) == 0
    assert json.loads(capsys.readouterr().out) == {"waiting": 0, "running": 0, "requeued": 0}
    assert main(["workers", "ping"]) == 1
    assert tuple(capsys.readouterr()) == ("{}\n", "")  # there, and no worker on it


def test_given_any_port_for_the_embedded_broker_then_its_url_is_asked_for(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BROKER_PORT", "0")

    expected = "HEADRACE_BROKER_PORT=0: any port may be the broker's; name it with HEADRACE_REDIS_URL"
    assert refused(capsys, "workers", "stats") == expected
    assert refused(capsys, "doctor") == expected
