"""Clients that hang up, and jobs that run out of time: everything they held comes back."""

import json
import signal
import socket
import threading

import httpx

from tests.faults.conftest import queue_of
from tests.processes import wait_until
from tests.stack import Stack
from tests.streams import chat, chat_body, resume
from worker.protocol.job import JobClass

LONG_PROMPT = [{"role": "user", "content": "river " * 2000}]


def job_ids(stack: Stack) -> list[str]:
    return [key.decode().rpartition(":")[2] for key in stack.redis().scan_iter("headrace:{tiny}:job:*")]


def assert_all_came_back(stack: Stack, job_id: str) -> None:
    queue = queue_of(stack)
    wait_until(lambda: queue.describe(job_id)["state"] == "cancelled", "the job is cancelled")
    wait_until(lambda: stack.worker_pages()["held"] == 0, "the pages are free")
    snapshot = queue.snapshot()
    assert (snapshot.num_running, snapshot.depth[JobClass.INTERACTIVE], snapshot.tokens[JobClass.INTERACTIVE]) == (
        0,
        0,
        0,
    )
    assert stack.redis().hgetall("headrace:{tiny}:tenants") == {}
    pages = stack.worker_pages()
    assert pages["free"] + pages["cached"] == 8192


def test_a_client_that_leaves_while_queued_is_never_started(stack: Stack) -> None:
    stack.workers[-1].send(signal.SIGSTOP)
    known = set(job_ids(stack))
    reader = chat(stack.url, chat_body(100))
    wait_until(lambda: queue_of(stack).snapshot().depth[JobClass.INTERACTIVE] == 1, "the job waits")
    [job_id] = set(job_ids(stack)) - known
    reader.hang_up()
    wait_until(lambda: queue_of(stack).describe(job_id)["state"] == "cancelled", "the job is cancelled")
    stack.workers[-1].send(signal.SIGCONT)
    assert chat(stack.url, chat_body(5)).wait_for_end().is_done
    assert job_id not in stack.workers[-1].log_text()
    assert_all_came_back(stack, job_id)


def test_a_client_that_leaves_in_prefill_frees_its_pages(stack: Stack) -> None:
    known = set(job_ids(stack))
    # An answer long enough that the job cannot end before its client is missed.
    reader = chat(stack.url, chat_body(1500, messages=LONG_PROMPT))
    wait_until(lambda: stack.worker_pages()["held"] > 0 or len(reader.chunks) > 0, "the prefill has begun")
    [job_id] = set(job_ids(stack)) - known
    reader.hang_up()
    assert_all_came_back(stack, job_id)


def test_a_client_that_leaves_in_decode_frees_its_pages(stack: Stack) -> None:
    reader = chat(stack.url, chat_body(3000)).wait_for_chunks(5)
    reader.hang_up()
    assert_all_came_back(stack, reader.job_id)


def test_a_client_that_leaves_a_whole_request_frees_its_pages(stack: Stack) -> None:
    known = set(job_ids(stack))
    address = ("127.0.0.1", stack.web.port)
    body = json.dumps(chat_body(3000)).encode()
    with socket.create_connection(address) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        wait_until(lambda: stack.worker_pages()["held"] > 0, "the job runs")
    [job_id] = set(job_ids(stack)) - known
    assert_all_came_back(stack, job_id)


def test_a_resumable_stream_waits_for_its_client(stack: Stack) -> None:
    expected = chat(stack.url, chat_body(300)).wait_for_end().text
    reader = chat(stack.url, chat_body(300), **{"Headrace-Resume": "true"}).wait_for_chunks(10)
    reader.hang_up()
    rest = resume(stack.url, reader.job_id, after=reader.ids[-1]).wait_for_end()
    assert (reader.text + rest.text, rest.is_done) == (expected, True)
    again = resume(stack.url, reader.job_id, after=0).wait_for_end()
    assert again.text == expected, "a finished stream can be read again while it is kept"


def test_a_second_reader_that_leaves_takes_nothing_from_the_first(stack: Stack) -> None:
    expected = chat(stack.url, chat_body(300)).wait_for_end().text
    first = chat(stack.url, chat_body(300)).wait_for_chunks(5)
    second = resume(stack.url, first.job_id, after=0).wait_for_chunks(3)
    second.hang_up()
    assert first.wait_for_end().text == expected
    assert first.is_done


def test_a_stream_that_runs_out_of_time_ends_with_an_error(stack: Stack) -> None:
    reader = chat(stack.url, chat_body(3000, timeout=1.5)).wait_for_end()
    assert reader.error == {
        "message": "The request did not finish within its timeout.",
        "type": "timeout_error",
        "param": None,
        "code": "timeout",
    }
    wait_until(lambda: stack.worker_pages()["held"] == 0, "the pages are free")


def test_a_job_that_runs_out_of_time_in_the_queue_never_starts(stack: Stack) -> None:
    stack.workers[-1].send(signal.SIGSTOP)
    response = httpx.post(stack.url + "/v1/chat/completions", json=chat_body(10, timeout=0.5), timeout=60)
    stack.workers[-1].send(signal.SIGCONT)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")


def test_an_api_that_ends_in_order_finishes_its_streams(stack: Stack) -> None:
    expected = chat(stack.url, chat_body(300)).wait_for_end().text
    reader = chat(stack.url, chat_body(300)).wait_for_chunks(5)
    exits: list[int] = []
    ending = threading.Thread(target=lambda: exits.append(stack.web.process.terminate()))
    ending.start()
    reader.wait_for_end()
    ending.join()
    assert (reader.text, reader.is_done, exits) == (expected, True, [0])
