"""kill -9, in turn, of everything; and what the client sees of it."""

import signal
import sys

from tests.faults.conftest import queue_of
from tests.processes import wait_until
from tests.stack import Stack
from tests.streams import chat, chat_body, resume
from worker.protocol.job import JobClass

LONG = 300  # tokens: some seconds, time enough to break things


def undisturbed_text(stack: Stack, num_tokens: int = LONG) -> str:
    reader = chat(stack.url, chat_body(num_tokens)).wait_for_end()
    assert reader.is_done
    return reader.text


def test_what_is_broken_here_is_the_lean_decoder_in_bfloat16(stack: Stack) -> None:
    arithmetic, dtype, *_ = queue_of(stack).snapshot().workers[0].fingerprint.split("/")
    assert (arithmetic.startswith("lean"), dtype) == (True, "bfloat16")


def test_the_stream_goes_on_when_its_worker_is_killed(stack: Stack) -> None:
    expected = undisturbed_text(stack)
    reader = chat(stack.url, chat_body(LONG)).wait_for_chunks(20)
    stack.workers[-1].kill()
    stack.start_worker()
    reader.wait_for_end()
    assert (reader.text, reader.is_done, reader.error) == (expected, True, None)
    assert reader.chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_every_stream_of_a_killed_worker_goes_on(stack: Stack) -> None:
    bodies = [chat_body(150, messages=[{"role": "user", "content": f"Story {i}"}]) for i in range(6)]
    expected = [chat(stack.url, body).wait_for_end().text for body in bodies]
    readers = [chat(stack.url, body) for body in bodies]
    for reader in readers:
        reader.wait_for_chunks(5)
    stack.workers[-1].kill()
    stack.start_worker()
    assert [reader.wait_for_end().text for reader in readers] == expected
    assert all(reader.is_done for reader in readers)


def test_a_worker_that_ends_in_order_hands_its_streams_on_without_an_attempt(stack: Stack) -> None:
    expected = undisturbed_text(stack)
    reader = chat(stack.url, chat_body(LONG)).wait_for_chunks(20)
    assert stack.workers[-1].terminate() == 0
    assert queue_of(stack).describe(reader.job_id)["attempts"] == "0"
    stack.start_worker()
    assert reader.wait_for_end().text == expected


def test_the_client_resumes_at_another_api_process_and_misses_nothing(stack: Stack) -> None:
    stack.mend(num_webs=2)
    first, second = stack.webs[:2]
    expected = undisturbed_text(stack)
    reader = chat(first.url, chat_body(LONG), **{"Headrace-Resume": "true"}).wait_for_chunks(20)
    first.process.kill()
    reader.wait_for_end()
    assert not reader.is_done
    assert reader.ids == list(range(1, len(reader.ids) + 1))
    rest = resume(second.url, reader.job_id, after=reader.ids[-1]).wait_for_end()
    assert rest.is_done
    assert reader.text + rest.text == expected
    assert rest.ids[0] == reader.ids[-1] + 1


def test_a_dead_api_process_leaves_no_orphan_decoding(stack: Stack) -> None:
    stack.mend(num_webs=2)
    chat(stack.webs[0].url, chat_body(3000)).wait_for_chunks(5)
    stack.webs[0].process.kill()
    wait_until(lambda: queue_of(stack).snapshot().num_running == 0, "the job is cancelled")
    wait_until(lambda: stack.worker_pages()["held"] == 0, "its pages are free")


def test_a_stream_survives_a_restart_of_the_broker(stack: Stack) -> None:
    expected = undisturbed_text(stack)
    reader = chat(stack.url, chat_body(LONG)).wait_for_chunks(20)
    stack.restart_broker()
    reader.wait_for_end()
    assert (reader.text, reader.is_done, reader.error) == (expected, True, None)


def test_a_stream_survives_kill_9_of_the_broker(stack: Stack) -> None:
    expected = undisturbed_text(stack)
    reader = chat(stack.url, chat_body(LONG)).wait_for_chunks(20)
    stack.broker.kill()
    stack.start_broker()
    reader.wait_for_end()
    assert (reader.text, reader.is_done, reader.error) == (expected, True, None)
    assert undisturbed_text(stack, 10) != ""


def test_an_emptied_broker_is_told_to_the_client_of_a_started_job(stack: Stack) -> None:
    reader = chat(stack.url, chat_body(3000)).wait_for_chunks(5)
    stack.redis().flushall()
    reader.wait_for_end()
    assert reader.error is not None
    assert reader.error["code"] == "job_lost"
    wait_until(lambda: stack.worker_pages()["held"] == 0, "the worker dropped the job")


def test_a_waiting_job_is_admitted_again_when_the_broker_was_emptied(stack: Stack) -> None:
    expected = undisturbed_text(stack, 30)
    stack.workers[-1].send(signal.SIGSTOP)
    reader = chat(stack.url, chat_body(30))
    wait_until(lambda: queue_of(stack).snapshot().depth[JobClass.INTERACTIVE] == 1, "the job waits")
    stack.redis().flushall()
    stack.workers[-1].send(signal.SIGCONT)
    assert reader.wait_for_end().text == expected


def test_a_poison_job_fails_alone_while_its_neighbours_finish(stack: Stack) -> None:
    stack.workers[-1].kill()
    poisoned = [sys.executable, "-m", "tests.faults.poisoned_worker"]
    worker = stack.run_worker_again_and_again(poisoned)
    stack.wait_ready()
    bodies = [chat_body(120, messages=[{"role": "user", "content": f"Story {i}"}]) for i in range(4)]
    readers = [chat(stack.url, body) for body in bodies]
    for reader in readers:
        reader.wait_for_chunks(3)
    poison = chat(stack.url, chat_body(50, messages=[{"role": "user", "content": "poison"}])).wait_for_end()
    texts = [reader.wait_for_end().text for reader in readers]
    worker.stop()
    assert poison.error is not None
    assert (poison.error["code"], poison.error["type"]) == ("worker_lost", "server_error")
    assert all(reader.is_done and reader.error is None for reader in readers)
    stack.start_worker()
    stack.wait_ready()
    assert texts == [chat(stack.url, body).wait_for_end().text for body in bodies]


def test_a_stuck_worker_is_not_ready_and_its_stream_goes_on_elsewhere(stack: Stack) -> None:
    expected = undisturbed_text(stack)
    reader = chat(stack.url, chat_body(LONG)).wait_for_chunks(20)
    stack.workers[-1].send(signal.SIGSTOP)
    wait_until(lambda: stack.get("/readyz").status_code == 503, "readiness says 503")
    assert stack.get("/livez").status_code == 200
    stack.start_worker()
    assert reader.wait_for_end().text == expected
    stack.workers[-1].send(signal.SIGCONT)
    assert undisturbed_text(stack) == expected, "the zombie does no harm"
