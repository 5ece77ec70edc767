"""Settings that cannot be used are refused by name, before anything is served."""

import socket

import pytest

from worker.metrics import WorkerMetrics
from worker.protocol.configuration import BadSetting, read_settings
from worker.protocol.connection import connect
from worker.settings import WorkerSettings


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_given_a_time_that_is_no_number_of_seconds_then_it_is_refused_by_name(value: str) -> None:
    with pytest.raises(BadSetting, match="HEADRACE_LEASE_S"):
        read_settings(WorkerSettings, {"HEADRACE_LEASE_S": value})


def test_given_an_address_that_is_no_redis_then_it_is_refused_without_repeating_its_password() -> None:
    with pytest.raises(BadSetting, match="HEADRACE_REDIS_URL") as refused:
        connect("http://user:secret@127.0.0.1")
    assert "secret" not in str(refused.value)


def test_given_a_taken_metrics_port_then_a_second_worker_is_told_which_setting_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadSetting, match=f"HEADRACE_WORKER_METRICS_PORT={port}.*0 for any free one"):
            WorkerMetrics().serve(port)
