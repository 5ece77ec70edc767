"""Settings that cannot be used are refused by name, before anything is served."""

import socket
from pathlib import Path

import pytest

from api.settings import ApiSettings
from worker.metrics import WorkerMetrics
from worker.protocol.configuration import BadSetting, read_settings, refuse_unknown_keys
from worker.protocol.connection import check_access, connect
from worker.settings import WorkerSettings


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_given_a_time_that_is_no_number_of_seconds_then_it_is_refused_by_name(value: str) -> None:
    with pytest.raises(BadSetting, match="HEADRACE_LEASE_S"):
        read_settings(WorkerSettings, {"HEADRACE_LEASE_S": value})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("queue_depth = [1]", "HEADRACE_QUEUE_DEPTH=[1]: expected a whole number"),
        ("port = 80.7", "HEADRACE_PORT=80.7: expected a whole number"),
        ("web_processes = true", "HEADRACE_WEB_PROCESSES=True: expected a whole number"),
        ('api_keys = ["a", "b"]', "HEADRACE_API_KEYS=['a', 'b']: expected text"),
    ],
)
def test_given_a_value_of_another_type_in_the_file_then_it_is_refused_by_name(
    line: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(line)
    with pytest.raises(BadSetting) as refused:
        read_settings(ApiSettings, {"HEADRACE_CONFIG": str(file)})
    assert str(refused.value) == told


def test_given_whole_numbers_and_text_in_the_file_then_they_serve_as_numbers(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('max_wait_s = 5\nport = "81"\n')
    settings = read_settings(ApiSettings, {"HEADRACE_CONFIG": str(file)})
    assert (settings.max_wait_s, settings.port) == (5.0, 81)


@pytest.mark.parametrize("key", ["prot", "Port", "HEADRACE_PORT", "api"])
def test_given_a_key_in_the_file_that_is_no_setting_then_it_is_refused_by_name(key: str, tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text("[api]\nport = 1\n" if key == "api" else f"{key} = 80\n")
    environ = {"HEADRACE_CONFIG": str(file)}
    with pytest.raises(BadSetting, match=f"^{key}: "):
        refuse_unknown_keys([ApiSettings], environ)
    file.write_text("port = 80\n")
    refuse_unknown_keys([ApiSettings], environ)


def test_given_a_file_that_is_no_text_then_the_setting_that_names_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadSetting, match=r"^HEADRACE_CONFIG="):
        read_settings(ApiSettings, {"HEADRACE_CONFIG": str(file)})


def test_given_a_broker_that_refuses_us_then_it_is_a_bad_setting_and_one_that_is_away_is_not(broker_url: str) -> None:
    with pytest.raises(BadSetting, match=r"^HEADRACE_REDIS_URL: .*out of range"):
        check_access(broker_url.rpartition("/")[0] + "/99")
    check_access(broker_url)
    check_access("redis://127.0.0.1:1/0")


def test_given_an_address_that_is_no_redis_then_it_is_refused_without_repeating_its_password() -> None:
    for url in ("http://user:secret@127.0.0.1", "redis://:secret/rest@127.0.0.1"):
        with pytest.raises(BadSetting, match="HEADRACE_REDIS_URL") as refused:
            connect(url)
        assert "secret" not in str(refused.value)


def test_given_a_taken_metrics_port_then_a_second_worker_is_told_which_setting_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadSetting, match=f"HEADRACE_WORKER_METRICS_PORT={port}.*0 for any free one"):
            WorkerMetrics().serve(port)
