"""What `headrace up` decides before it starts anything."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops import cli, entry
from ops.ports import free_port, held, is_port_free
from ops.supervision import Plan
from ops.up import CannotStart, child_environment, plans, settle_ports, stop_order
from tests.processes import clean_environment

FREE_METRICS_PORT = {"HEADRACE_WORKER_METRICS_PORT": "0"}


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody listens, ready to share it as API processes do."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("variable", ["HEADRACE_PORT", "HEADRACE_BROKER_PORT", "HEADRACE_WORKER_METRICS_PORT"])
def test_given_a_port_in_use_then_the_error_names_it_and_its_setting(taken_port: int, variable: str) -> None:
    environ = {"HEADRACE_PORT": "0", "HEADRACE_BROKER_PORT": "0", **FREE_METRICS_PORT, variable: str(taken_port)}

    with pytest.raises(CannotStart, match=f"port {taken_port} is in use by another program: .* {variable} "):
        settle_ports(environ, has_broker=True)


@pytest.mark.parametrize("port", ["21000", "0"])
def test_given_a_host_that_is_none_of_this_machines_then_the_error_names_it(port: str) -> None:
    with pytest.raises(CannotStart, match=r"HEADRACE_HOST: cannot listen on 192\.0\.2\.1: "):
        settle_ports({"HEADRACE_HOST": "192.0.2.1", "HEADRACE_PORT": port}, has_broker=False)


def test_a_port_that_is_held_is_free_for_those_who_share_it_alone() -> None:
    port = free_port()
    with held("127.0.0.1", port), socket.socket() as listener:
        assert not is_port_free("127.0.0.1", port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        for _ in range(50):
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
            listener.accept()[0].close()
    assert is_port_free("127.0.0.1", port)


def test_given_ctrl_c_while_the_command_is_still_loading_then_it_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupt)
    assert entry.main() == entry.INTERRUPTED


def test_given_port_zero_then_free_ports_are_chosen_and_the_broker_is_found_at_its_own() -> None:
    environ = {"HEADRACE_PORT": "0", "HEADRACE_BROKER_PORT": "0", **FREE_METRICS_PORT}
    settle_ports(environ, has_broker=True)

    assert int(environ["HEADRACE_PORT"]) > 0
    assert int(environ["HEADRACE_BROKER_PORT"]) > 0
    assert environ["HEADRACE_REDIS_URL"] == f"redis://127.0.0.1:{environ['HEADRACE_BROKER_PORT']}/0"


def test_given_a_redis_of_the_users_own_then_it_is_left_as_it_is() -> None:
    environ = {"HEADRACE_PORT": "0", "HEADRACE_REDIS_URL": "redis://elsewhere:6379/3", **FREE_METRICS_PORT}
    settle_ports(environ, has_broker=False)

    assert environ["HEADRACE_REDIS_URL"] == "redis://elsewhere:6379/3"
    assert "HEADRACE_BROKER_PORT" not in environ


def test_the_commands_of_this_installation_come_first_on_the_path() -> None:
    environ = child_environment({"PATH": "/usr/bin"})

    assert environ["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"


def test_the_broker_starts_first_and_each_is_given_its_own_grace() -> None:
    environ = {"HEADRACE_WEB_GRACE_S": "7", "HEADRACE_WORKER_GRACE_S": "9"}

    assert plans(["web", "worker", "broker", "other"], environ) == [
        Plan("broker", (), 15),
        Plan("web", ("broker",), 12),
        Plan("worker", ("broker",), 14),
        Plan("other", ("broker",), 10),
    ]


def test_batches_wait_for_those_who_answer_where_these_run_here() -> None:
    assert [plan.after for plan in plans(["broker", "web", "batch", "worker"], {})] == [
        (),
        ("broker",),
        ("broker", "web", "worker"),
        ("broker",),
    ]
    assert [plan.after for plan in plans(["web", "batch"], {})] == [(), ()]


def test_given_no_broker_of_our_own_then_nobody_waits_for_one() -> None:
    assert [plan.after for plan in plans(["web", "worker"], {})] == [(), ()]


def test_what_brings_work_in_stops_first_and_the_broker_last() -> None:
    assert stop_order(["broker", "worker", "other", "batch", "web"]) == ["other", "web", "batch", "worker", "broker"]


def headrace(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ops.cli", *arguments]
    environ = clean_environment(**settings)
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_given_a_port_in_use_then_the_command_says_so_at_once_and_fails(taken_port: int) -> None:
    result = headrace("up", HEADRACE_PORT=str(taken_port), HEADRACE_BROKER_PORT="0", **FREE_METRICS_PORT)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"headrace: port {taken_port} is in use by another program: "
        "choose another with HEADRACE_PORT (0: any free one)\n"
    )


def test_given_a_bad_setting_then_the_command_names_it_and_fails() -> None:
    result = headrace("up", HEADRACE_PORT="many")

    assert result.returncode == 1
    assert result.stderr == "headrace: HEADRACE_PORT='many': expected a whole number\n"


def test_given_a_bad_setting_of_batches_then_it_is_told_before_anything_starts() -> None:
    result = headrace("up", HEADRACE_WEBHOOK_URL="https://example.com/done", HEADRACE_PORT="0", **FREE_METRICS_PORT)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "headrace: HEADRACE_WEBHOOK_SECRET: must be set where HEADRACE_WEBHOOK_URL is\n"


def test_given_a_model_folder_that_is_not_there_then_the_command_says_so_and_fails(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    result = headrace("up", HEADRACE_MODEL=missing, HEADRACE_PORT="0", HEADRACE_BROKER_PORT="0", **FREE_METRICS_PORT)

    assert result.returncode == 1
    assert result.stderr == f"headrace: HEADRACE_MODEL='{missing}': there is no such folder\n"


def test_given_a_redis_of_the_users_own_then_no_broker_is_started_and_a_failing_process_ends_it(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("broker: false\nweb: python -c 'raise SystemExit(\"no luck\")'\n")
    result = headrace(
        "up",
        "--procfile",
        str(tmp_path / "Procfile"),
        HEADRACE_REDIS_URL="redis://127.0.0.1:1/0",
        HEADRACE_MODEL=str(tmp_path),
        HEADRACE_MODEL_NAME="any",
        HEADRACE_PORT="0",
        **FREE_METRICS_PORT,
    )

    assert result.returncode == 1
    assert "started broker" not in result.stdout
    assert result.stdout.count("web      | no luck\n") == 3
    assert result.stdout.endswith("headrace | giving up: web does not start. Its last lines above say why\n")


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [("web", "HEADRACE_API_KEYS", "key=a,key=b"), ("worker", "HEADRACE_DTYPE", "foo")],
)
def test_given_what_only_one_process_finds_wrong_then_it_is_told_once_and_nothing_is_tried_again(
    name: str, variable: str, value: str, tmp_path: Path, tiny_model_folder: Path
) -> None:
    result = headrace(
        "up",
        HEADRACE_DATA=str(tmp_path),
        HEADRACE_MODEL=str(tiny_model_folder),
        HEADRACE_PORT="0",
        HEADRACE_BROKER_PORT="0",
        **FREE_METRICS_PORT,
        **{variable: value},
    )

    assert result.returncode == 1
    assert (result.stdout.count(f"started {name} "), result.stdout.count(variable)) == (1, 1)
    assert f"giving up: {name} does not start. Its last lines above say why\n" in result.stdout
    assert result.stdout.endswith("headrace | broker exited with code 0\n")


def test_the_version_is_the_packages() -> None:
    assert headrace("version").stdout == "0.1.0\n"
