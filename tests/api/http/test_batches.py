"""POST /v1/batches and what can be asked about batches, with nobody there to drive them."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Batch

from tests.api.http.client import error_of, get, post
from tests.api.http.conftest import Servers
from tests.api.http.reciter import RECITER
from tests.api.http.schemas import assert_valid
from tests.stack import WebServer

ALICE = {"Authorization": "Bearer sesame"}
BOB = {"Authorization": "Bearer open"}
LINE = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}}


@pytest.fixture(scope="module")
def alice(servers: Servers) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=servers.strict.url + "/v1", api_key="sesame", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def file_id(alice: openai.OpenAI) -> str:
    """Of alice's."""
    return alice.files.create(file=("in.jsonl", json.dumps(LINE).encode()), purpose="batch").id


def body(file_id: str, **more: Any) -> dict[str, Any]:
    return {"input_file_id": file_id, "endpoint": "/v1/completions", "completion_window": "24h", **more}


def created(server: WebServer, file_id: str, **more: Any) -> Batch:
    response = post(server, "/v1/batches", body(file_id, **more), **ALICE)
    assert response.status_code == 200, response.text
    assert_valid(Batch, response.json())
    return Batch.model_validate(response.json())


def test_given_a_file_then_a_batch_of_it_waits_to_be_validated(
    strict: WebServer, alice: openai.OpenAI, file_id: str
) -> None:
    batch = created(strict, file_id, metadata={"for": "tests"})

    assert (batch.status, batch.input_file_id, batch.metadata) == ("validating", file_id, {"for": "tests"})
    assert batch.expires_at == batch.created_at + 24 * 3600
    assert (batch.output_file_id, batch.error_file_id, batch.errors, batch.model) == (None, None, None, None)
    assert batch.request_counts is not None
    assert batch.request_counts.total == 0
    assert alice.batches.retrieve(batch.id) == batch


@pytest.mark.parametrize(("window", "seconds"), [("24h", 86400), ("90m", 5400), ("7s", 7)])
def test_a_completion_window_may_be_of_any_length_up_to_a_week(
    strict: WebServer, file_id: str, window: str, seconds: int
) -> None:
    batch = created(strict, file_id, completion_window=window)

    assert (batch.completion_window, batch.expires_at) == (window, batch.created_at + seconds)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input_file_id": None}, "input_file_id"),
        ({"input_file_id": 7}, "input_file_id"),
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "/v1/images/generations"}, "endpoint"),
        ({"completion_window": None}, "completion_window"),
        ({"completion_window": "1d"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"completion_window": "169h"}, "completion_window"),
        ({"metadata": {f"{i}": "" for i in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata." + "k" * 64),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"metadata": {"k": 7}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after.seconds"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after.anchor"),
    ],
)
def test_given_a_wrong_field_then_the_error_names_it(
    strict: WebServer, file_id: str, change: dict[str, Any], param: str
) -> None:
    response = post(strict, "/v1/batches", body(file_id) | change, **ALICE)

    assert response.status_code == 400
    error = error_of(response)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_given_a_file_that_is_not_there_or_another_tenants_then_it_is_not_found(
    strict: WebServer, file_id: str
) -> None:
    for unknown, key in (("file-" + "0" * 32, ALICE), ("../../etc/passwd", ALICE), (file_id, BOB)):
        response = post(strict, "/v1/batches", body(unknown), **key)
        assert response.status_code == 404
        assert error_of(response)["param"] == "input_file_id"


def test_given_a_file_in_use_then_it_cannot_be_deleted(strict: WebServer, alice: openai.OpenAI, file_id: str) -> None:
    created(strict, file_id)

    with pytest.raises(openai.ConflictError):
        alice.files.delete(file_id)


def test_batches_are_listed_in_pages_the_newest_first(strict: WebServer, alice: openai.OpenAI, file_id: str) -> None:
    made = [created(strict, file_id).id for _ in range(5)]

    page = alice.batches.list(limit=2)

    assert [batch.id for batch in page.data] == made[:2:-1]
    assert page.has_more
    paged = iter(page)
    assert [next(paged).id for _ in range(5)] == made[::-1]


def test_given_a_wrong_place_in_the_list_then_it_is_refused(strict: WebServer) -> None:
    for query, param in (("after=batch_x", "after"), ("limit=0", "limit"), ("limit=101", "limit")):
        response = get(strict, "/v1/batches?" + query, **ALICE)
        assert (response.status_code, error_of(response)["param"]) == (400, param)


def test_a_batch_is_its_tenants_alone(strict: WebServer, file_id: str) -> None:
    batch = created(strict, file_id)

    assert get(strict, f"/v1/batches/{batch.id}", **BOB).status_code == 404
    assert post(strict, f"/v1/batches/{batch.id}/cancel", b"", **BOB).status_code == 404
    assert batch.id not in get(strict, "/v1/batches?limit=100", **BOB).text
    assert get(strict, f"/v1/batches/{batch.id}").status_code == 401
    for unknown in ("batch_" + "0" * 32, "batch_x", "x" * 1000):
        assert get(strict, f"/v1/batches/{unknown}", **ALICE).status_code == 404


def test_a_batch_can_be_cancelled_and_cancelled_again(strict: WebServer, alice: openai.OpenAI, file_id: str) -> None:
    batch = created(strict, file_id)

    for _ in range(2):
        cancelled = alice.batches.cancel(batch.id)
        assert cancelled.status == "cancelling"
        assert cancelled.cancelling_at is not None


def test_given_a_new_batch_or_background_response_then_it_is_on_disk_before_it_is_told(
    servers: Servers, file_id: str
) -> None:
    broker, tide = servers.stack.redis(), f"headrace:{{{RECITER}}}:tide"

    broker.delete(tide)
    created(servers.strict, file_id)
    assert broker.exists(tide), "the queue was asked to wait for the disk"

    broker.delete(tide)
    asked = {"model": RECITER, "input": "Hi", "background": True, "max_output_tokens": 2}
    assert post(servers.strict, "/v1/responses", asked, **ALICE).status_code == 200
    assert broker.exists(tide)


def test_metrics_tell_of_batches(strict: WebServer, file_id: str) -> None:
    created(strict, file_id)
    text = get(strict, "/metrics").text

    assert 'headrace_batches{status="validating"}' in text
    assert 'headrace_batch_lines{state="waiting"} 0.0' in text
    assert 'headrace_batch_lines_ended_total{state="completed"} 0.0' in text
    (age,) = [row for row in text.splitlines() if row.startswith("headrace_batch_oldest_age_seconds ")]
    assert float(age.split()[1]) > 0
