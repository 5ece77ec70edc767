"""A batch from its file to its files: every line ends in one of them, once, under its own custom_id."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from openai.types import Batch as OpenAIBatch

from api.batch.drive import Driver
from api.batch.records import Order, mint_batch_id
from api.batch.settings import BatchSettings
from tests.api.batch.conftest import MODEL, TENANT, Workbench, jsonl, line, texts_by_id
from tests.api.http.schemas import assert_valid
from worker.protocol import keys

NewBench = Callable[..., Workbench]


def left_of(bench: Workbench, batch_id: str) -> list[str]:
    """Keys in Redis that belong to the batch or its jobs."""
    prefix = keys.prefix(bench.model.name)
    keys_there = cast(list[bytes], bench.client.keys(prefix + "*"))
    found = [key.decode().removeprefix(prefix) for key in keys_there]
    return sorted(key for key in found if batch_id in key or key.startswith(("job:", "out:")))


def test_given_good_lines_then_each_answer_stands_under_its_own_custom_id(bench: Workbench) -> None:
    prompts = {f"line-{i}": f"This is prompt number {i}" for i in range(200)}
    batch_id = bench.order(jsonl(line(name, prompt) for name, prompt in prompts.items()))

    batch = bench.finish(batch_id)

    assert batch.status == "completed"
    assert texts_by_id(bench.rows(batch, "output")) == prompts
    assert batch.files.keys() == {"output_file_id"}
    assert batch.counts == {"total": 200, "completed": 200, "failed": 0}
    shown = batch.shown()
    assert_valid(OpenAIBatch, shown)
    num_tokens = sum(row["response"]["body"]["usage"]["total_tokens"] for row in bench.rows(batch, "output"))
    assert shown["usage"]["total_tokens"] == num_tokens
    assert shown["usage"]["input_tokens_details"] == {"cached_tokens": 200}
    assert shown["model"] == MODEL


def test_given_an_ended_batch_then_nothing_but_its_record_and_files_is_left(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}") for i in range(100)))
    bench.finish(batch_id)
    assert bench.desk.store.littered() == [batch_id]

    bench.sweep.tidy(batch_id)

    assert left_of(bench, batch_id) == [f"batch:{batch_id}"]
    assert bench.stored_parts() == []
    assert bench.desk.store.littered() == []


def test_given_bad_and_refused_lines_then_they_are_in_the_error_file_and_the_rest_completes(bench: Workbench) -> None:
    data = jsonl([line("a", "one"), line("b", "two", url="/v1/chat/completions")])
    data += b"not json\n\n" + jsonl([line("a", "again"), line("c", model="other"), line("d", stream=True)])
    data += jsonl([line("e", "word " * 3000)])

    batch = bench.finish(bench.order(data))

    assert texts_by_id(bench.rows(batch, "output")) == {"a": "one"}
    assert batch.counts == {"total": 7, "completed": 1, "failed": 6}
    errors = bench.rows(batch, "error")
    assert sorted(
        (row["custom_id"] or "", row["error"]["code"]) for row in errors if row["response"] is None
    ) == [("", "invalid_json_line"), ("a", "duplicate_custom_id"), ("b", "invalid_url")]  # fmt: skip
    refused = {row["custom_id"]: row["response"] for row in errors if row["response"] is not None}
    assert {name: (found["status_code"], found["body"]["error"]["code"]) for name, found in refused.items()} == {
        "c": (404, "model_not_found"),
        "d": (400, "unsupported_parameter"),
        "e": (400, "context_length_exceeded"),
    }
    assert [(error.line, error.code) for error in batch.errors] == [
        (2, "invalid_url"), (3, "invalid_json_line"), (5, "duplicate_custom_id"),
    ]  # fmt: skip
    assert [row["error"]["message"].split(":")[0] for row in errors if row["response"] is None] == [
        "Line 2", "Line 3", "Line 5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"\xef\xbb\xbf\r\n \n", "empty_file"),
        (b"no json\n", "invalid_json_line"),
        (jsonl(line(f"{i}") for i in range(50_001)), "too_many_requests"),
    ],
)
def test_given_a_file_that_cannot_be_run_then_the_batch_fails_and_says_why(
    bench: Workbench, data: bytes, code: str
) -> None:
    batch = bench.finish(bench.order(data))

    assert batch.status == "failed"
    assert [error.code for error in batch.errors] == [code]
    assert batch.files == {}
    assert batch.shown()["failed_at"] is not None


def test_given_lines_that_are_all_refused_then_there_is_an_error_file_and_no_output_file(bench: Workbench) -> None:
    batch = bench.finish(bench.order(jsonl(line(f"{i}", model="other") for i in range(5))))

    assert batch.status == "completed"
    assert batch.counts == {"total": 5, "completed": 0, "failed": 5}
    assert batch.files.keys() == {"error_file_id"}
    assert sorted(row["custom_id"] for row in bench.rows(batch, "error")) == ["0", "1", "2", "3", "4"]


def test_given_a_job_that_fails_then_its_row_is_what_a_live_client_would_have_been_told(bench: Workbench) -> None:
    batch_id = bench.order(jsonl([line("a", "one"), line("b", "two")]))
    bench.engine.sign_on()
    bench.step(batch_id, 2)
    first, second = bench.engine.claim(2)
    bench.engine.answer(first)
    bench.engine.fail(second, "engine_error")

    batch = bench.finish(batch_id)

    (row,) = bench.rows(batch, "error")
    assert row["response"]["status_code"] == 500
    assert row["response"]["body"]["error"]["code"] == "engine_error"
    assert row["error"] is None
    assert {row["custom_id"]} | texts_by_id(bench.rows(batch, "output")).keys() == {"a", "b"}


def test_given_a_batch_cancelled_midway_then_what_was_done_is_kept_and_every_line_has_a_row(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}", f"prompt {i}") for i in range(300)))
    bench.engine.sign_on()
    bench.step(batch_id, 3)
    served = bench.engine.serve(max_jobs=40)
    running = bench.engine.claim(5)
    assert (len(served), len(running)) == (40, 5)

    assert bench.desk.store.stop(batch_id, "cancelled") == "in_progress"
    assert bench.load(batch_id).status == "cancelling"
    batch = bench.finish(batch_id)

    assert batch.status == "cancelled"
    done, cancelled = bench.rows(batch, "output"), bench.rows(batch, "error")
    assert len(done) == 40
    assert {row["error"]["code"] for row in cancelled} == {"batch_cancelled"}
    assert sorted(int(row["custom_id"]) for row in (*done, *cancelled)) == list(range(300))
    assert batch.counts == {"total": 300, "completed": 40, "failed": 260}
    bench.sweep.tidy(batch_id)
    assert left_of(bench, batch_id) == [f"batch:{batch_id}"]


def test_given_a_batch_cancelled_before_its_file_was_read_then_every_line_has_a_row(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}") for i in range(3)))
    bench.desk.store.stop(batch_id, "cancelled")

    batch = bench.finish(batch_id)

    assert batch.status == "cancelled"
    assert sorted(row["custom_id"] for row in bench.rows(batch, "error")) == ["0", "1", "2"]


def test_given_a_batch_whose_time_is_over_then_what_was_done_is_kept_and_the_rest_expires(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}") for i in range(100)))
    bench.engine.sign_on()
    bench.step(batch_id, 2)
    bench.engine.serve(max_jobs=10)
    bench.client.hset(f"{keys.prefix(bench.model.name)}batch:{batch_id}", "expires_at", 1)

    batch = bench.finish(batch_id)

    assert batch.status == "expired"
    assert {row["error"]["code"] for row in bench.rows(batch, "error")} == {"batch_expired"}
    rows = (*bench.rows(batch, "output"), *bench.rows(batch, "error"))
    assert sorted(int(row["custom_id"]) for row in rows) == list(range(100))
    assert batch.counts["completed"] == 10
    assert batch.shown()["expired_at"] is not None


def test_given_jobs_that_the_broker_lost_then_they_are_run_again(bench: Workbench) -> None:
    prompts = {f"{i}": f"prompt {i}" for i in range(20)}
    batch_id = bench.order(jsonl(line(name, prompt) for name, prompt in prompts.items()))
    bench.engine.sign_on()
    bench.step(batch_id, 2)
    served = bench.engine.serve(max_jobs=7)
    bench.desk.shared.queue.drop(served)

    batch = bench.finish(batch_id)

    assert texts_by_id(bench.rows(batch, "output")) == prompts


def test_given_no_worker_then_lines_wait_and_none_fails(bench: Workbench) -> None:
    batch_id = bench.order(jsonl([line("a"), line("b")]))

    batch = bench.step(batch_id, 5)

    assert (batch.status, batch.cursor, batch.counts["failed"]) == ("in_progress", 0, 0)
    assert bench.finish(batch_id).counts["completed"] == 2


def test_given_bounds_then_no_more_than_so_many_lines_are_open_and_batches_share_them(new_bench: NewBench) -> None:
    bench = new_bench(BatchSettings(in_flight=10))
    first, second = (bench.order(jsonl(line(f"{i}") for i in range(30))) for _ in range(2))
    bench.engine.sign_on()
    for batch_id in (first, second) * 3:
        bench.step(batch_id, 3)

    assert [len(bench.desk.store.open_places(batch_id)) for batch_id in (first, second)] == [5, 5]
    assert bench.finish(first).counts["completed"] == 30
    assert bench.finish(second).counts["completed"] == 30


def test_given_a_full_queue_then_lines_wait_for_room(new_bench: NewBench) -> None:
    bench = new_bench(BatchSettings(queue_depth=4))
    batch_id = bench.order(jsonl(line(f"{i}") for i in range(9)))
    bench.engine.sign_on()

    assert bench.step(batch_id, 4).cursor == 4
    assert bench.finish(batch_id).counts == {"total": 9, "completed": 9, "failed": 0}


def test_given_a_tenants_tokens_then_its_batches_take_half_of_them_at_most(new_bench: NewBench) -> None:
    bench = new_bench(tenant_tokens=200)
    batch_id = bench.order(jsonl(line(f"{i}", "Hello", max_tokens=19) for i in range(9)))
    bench.engine.sign_on()

    assert bench.step(batch_id, 4).cursor == 5, "each costs a token of prompt and 19 of answer"
    assert bench.finish(batch_id).counts["completed"] == 9


def test_lines_whose_prompts_begin_alike_are_run_one_after_the_other(bench: Workbench) -> None:
    stories = ["Once upon a time " * 50, "In the beginning " * 50]
    batch_id = bench.order(jsonl(line(f"{i}", stories[i % 2] + str(i)) for i in range(8)))
    bench.engine.sign_on()
    bench.step(batch_id, 2)

    bench.engine.serve()
    order = [row["custom_id"] for row in bench.rows(bench.finish(batch_id), "output")]

    assert order in (["0", "2", "4", "6", "1", "3", "5", "7"], ["1", "3", "5", "7", "0", "2", "4", "6"])


def test_the_same_line_has_the_same_seed_whenever_it_is_submitted(bench: Workbench) -> None:
    order = Order(mint_batch_id(), TENANT, "/v1/completions", bench.upload(jsonl([line("a")])), "1h", 3600)
    seeds = []
    for _ in range(2):
        bench.desk.store.create(order)
        bench.engine.sign_on()
        bench.step(order.id, 2)
        (claimed,) = bench.engine.claim(1)
        seeds.append((claimed.job.id, claimed.job.sampling.seed))
        prefix = keys.prefix(bench.model.name)
        bench.client.delete(*bench.client.keys(prefix + "*"))

    assert seeds[0] == seeds[1]


def test_a_line_that_breaks_its_endpoint_fails_alone(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = type(bench.model.tokenizer).encode_prompts

    def encode_prompts(tokenizer: object, prompts: list[str], *more: object) -> object:
        if prompts == ["break"]:
            raise ZeroDivisionError
        return original(tokenizer, prompts, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(bench.model.tokenizer), "encode_prompts", encode_prompts)

    batch = bench.finish(bench.order(jsonl([line("a", "fine"), line("b", "break"), line("c", "fine too")])))

    assert texts_by_id(bench.rows(batch, "output")) == {"a": "fine", "c": "fine too"}
    (row,) = bench.rows(batch, "error")
    assert (row["custom_id"], row["response"]["status_code"]) == ("b", 500)


def test_given_an_input_file_that_is_gone_then_the_batch_fails_with_what_it_has(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}", f"prompt {i}") for i in range(200)))
    bench.engine.sign_on()
    bench.step(batch_id, 2)
    bench.engine.serve(max_jobs=64)
    bench.step(batch_id)
    bench.desk.storage.delete(bench.load(batch_id).order.input_file_id)

    batch = bench.finish(batch_id)

    assert batch.status == "failed"
    assert [error.code for error in batch.errors] == ["input_file_lost"]
    assert len(bench.rows(batch, "output")) == batch.counts["completed"] > 0


def test_given_a_storage_that_lost_all_then_no_job_of_the_failed_batch_is_left(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}") for i in range(20)))
    bench.engine.sign_on()
    bench.step(batch_id, 2)
    bench.engine.serve(max_jobs=5)
    batch = bench.load(batch_id)
    bench.desk.storage.delete(batch.plan, batch.order.input_file_id)
    fresh = Driver(bench.desk)
    while fresh.step(batch_id):
        pass

    bench.sweep.tidy(batch_id)

    assert bench.load(batch_id).status == "failed"
    assert left_of(bench, batch_id) == [f"batch:{batch_id}"]


def test_given_a_storage_far_away_then_lines_are_read_from_a_copy(new_bench: NewBench, tmp_path: Path) -> None:
    bench = new_bench(storage=f"memory://{tmp_path}")
    prompts = {f"{i}": f"prompt {i}" for i in range(100)}

    batch = bench.finish(bench.order(jsonl(line(name, prompt) for name, prompt in prompts.items())))

    assert texts_by_id(bench.rows(batch, "output")) == prompts


def test_given_rows_of_a_part_that_was_never_committed_then_they_are_not_in_the_files(bench: Workbench) -> None:
    batch_id = bench.order(jsonl(line(f"{i}") for i in range(10)))
    bench.step(batch_id)
    with bench.desk.storage.write(f"{batch_id}/stray") as writing:
        writing.write(b"a row of a driver that died\n")

    batch = bench.finish(batch_id)
    bench.sweep.tidy(batch_id)

    assert len(bench.rows(batch, "output")) == 10
    assert bench.stored_parts() == []


def test_records_of_batches_that_ended_long_ago_are_forgotten(bench: Workbench) -> None:
    batch_id = bench.finish(bench.order(jsonl([line("a")]))).id
    bench.sweep.tidy(batch_id)
    ended_s = bench.load(batch_id).stamps["completed_at"]

    assert bench.desk.store.forget_ended(ended_s - 1) == 0
    assert bench.desk.store.forget_ended(ended_s + 1) == 1
    assert bench.desk.store.page(TENANT, None, 10) == ([], False)
    assert left_of(bench, batch_id) == []


def test_a_file_in_use_is_released_when_the_batch_has_ended(bench: Workbench) -> None:
    batch_id = bench.order(jsonl([line("a")]))
    file_id = bench.load(batch_id).order.input_file_id
    assert bench.desk.files.hold(TENANT, file_id, batch_id, 10**12) is not None
    assert bench.desk.files.delete(TENANT, file_id) == "held"

    bench.finish(batch_id)
    bench.sweep.tidy(batch_id)

    assert bench.desk.files.delete(TENANT, file_id) == "dropped"
