"""The limits as clients read them in headers."""

import pytest

from api.pipeline.rate_limits import duration, full_queue_headers, limit_headers
from api.settings import ApiSettings
from worker.protocol.queue import Admission

SETTINGS = ApiSettings(queue_depth=10, tenant_tokens=1000)


def headers(drain_rate: float, num_waiting: int = 3, tenant_tokens: int = 400) -> list[str]:
    told = limit_headers(SETTINGS, Admission("admitted", "id", 200, drain_rate, num_waiting, tenant_tokens))
    return [
        told[f"x-ratelimit-{what}-{of}"] for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
    ]


def test_they_tell_the_queues_places_and_the_tenants_tokens() -> None:
    assert headers(drain_rate=100.0) == ["10", "7", "2s", "1000", "600", "4s"]


def test_nothing_is_promised_while_the_speed_is_unknown() -> None:
    assert headers(drain_rate=0.0) == ["10", "7", "1s", "1000", "600", "1s"]


@pytest.mark.parametrize("drain_rate", [3e-72, 5e-324])
def test_a_queue_that_hardly_moves_is_no_longer_than_a_day(drain_rate: float) -> None:
    assert headers(drain_rate) == ["10", "7", "24h0m0s", "1000", "600", "24h0m0s"]


def test_what_is_left_is_never_below_zero_and_takes_no_time_where_nothing_is_used() -> None:
    assert headers(drain_rate=100.0, num_waiting=12, tenant_tokens=5000)[1::3] == ["0", "0"]
    assert headers(drain_rate=100.0, tenant_tokens=0)[3:] == ["1000", "1000", "0s"]


def test_a_full_queue_has_no_place() -> None:
    assert full_queue_headers(SETTINGS, 50, 100.0) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "500ms",
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0001, "0s"), (0.017, "17ms"), (1, "1s"), (1.25, "1.25s"), (59.5, "59.5s"), (360, "6m0s"),
     (7323.4, "2h2m3.4s")],
)  # fmt: skip
def test_durations_are_written_as_openais(seconds: float, text: str) -> None:
    assert duration(seconds) == text
