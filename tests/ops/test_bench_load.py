"""The load generator, and what is read out of what it brings home."""

import asyncio
import socket

import pytest

from ops.bench.answer import Answer, read_answer
from ops.bench.load_generator import Exchange, drive, exchange, request_bytes
from ops.bench.workload import WORKLOADS, selected
from ops.ports import free_port
from tests.ops.fake_server import STREAMED, chunked, delta, event, fake_server, head, stream


def exchanged(*pieces: bytes) -> Exchange:
    """Pieces that came 1, 2, 3 ... seconds after the request was sent."""
    return Exchange(100.0, [(101.0 + i, piece) for i, piece in enumerate(pieces)])


def test_given_eight_clients_and_24_requests_then_eight_wait_at_once_and_each_answer_is_whole() -> None:
    with fake_server(concurrency=8) as server:
        requests = [request_bytes(server.port, "/v1/chat/completions", {"question": i}) for i in range(24)]
        exchanges, wall_s = drive(server.port, requests, concurrency=8)

    answers = [read_answer(one) for one in exchanges]
    assert sorted(body["question"] for body in server.bodies) == list(range(24))
    assert server.most_at_once == 8
    assert [answer.failure for answer in answers] == [""] * 24
    assert {len(answer.text_times_s) for answer in answers} == {3}
    assert {answer.num_output_tokens for answer in answers} == {5}
    assert max(answer.text_times_s[-1] for answer in answers) < wall_s


def test_given_fewer_requests_than_clients_then_each_is_sent_once() -> None:
    with fake_server(concurrency=3) as server:
        exchanges, _ = drive(server.port, [request_bytes(server.port, "/", {})] * 3, concurrency=32)

    assert (len(exchanges), server.most_at_once) == (3, 3)


def test_given_nobody_listens_then_the_failure_says_so() -> None:
    port = free_port()
    result = asyncio.run(exchange(port, request_bytes(port, "/", {})))

    assert result.failure.startswith("ConnectionRefusedError: ")
    assert read_answer(result) == Answer(failure=result.failure)


def test_given_a_server_that_never_answers_then_the_exchange_ends_with_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        result = asyncio.run(exchange(port, request_bytes(port, "/", {}), timeout_s=0.2))

    assert result.failure == "no end within 0.2 s"


def test_each_text_has_the_time_at_which_its_event_was_whole() -> None:
    first, second = delta(content="Hel"), delta(content="lo")
    body = chunked(delta(role="assistant") + first + second, size=10**6)
    cut = body.index(first) + len(first) - 1  # the last byte of the first event's empty line comes later

    answer = read_answer(exchanged(STREAMED, body[: cut - 1], body[cut - 1 :]))

    # The line ends in the third piece.
    assert answer == Answer(text_times_s=[3.0, 3.0], num_output_tokens=2)


def test_given_one_piece_an_event_then_the_times_are_theirs() -> None:
    pieces = [chunked(delta(content=word), 10**6).removesuffix(b"0\r\n\r\n") for word in ("a", "b", "c")]

    answer = read_answer(exchanged(STREAMED, *pieces, b"0\r\n\r\n"))

    assert answer.text_times_s == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_whatever_the_size_of_the_chunks_the_content_is_the_same(size: int) -> None:
    answer = read_answer(exchanged(STREAMED + chunked(stream(), size)))

    assert answer == Answer(
        text_times_s=[1.0] * 3, num_output_tokens=5, num_prompt_tokens=7, num_cached_tokens=2, is_counted=True
    )


def test_given_a_body_without_transfer_encoding_then_it_is_read_to_the_end() -> None:
    body = stream()
    answer = read_answer(exchanged(head("Content-Type: text/event-stream") + body[:50], body[50:]))

    assert (answer.num_output_tokens, answer.failure) == (5, "")


def test_given_completions_then_their_text_counts_as_well() -> None:
    body = event(choices=[{"text": "a"}]) + event(choices=[{"text": ""}]) + event(choices=[{"text": "b"}])

    assert read_answer(exchanged(STREAMED + chunked(body, 20))).num_output_tokens == 2


@pytest.mark.parametrize(
    ("raw", "failure"),
    [
        (b"", "not an event stream: ValueError: the connection ended after 0 bytes, within the HTTP head"),
        (head(status="429 Too Many Requests") + b"slow down", "HTTP 429: slow down"),
        (STREAMED + chunked(b"data: [DONE]\n\n", 5), "no text in the stream"),
        (STREAMED + chunked(delta(content="a") + event(error={"code": "x"}), 99), "in the stream: {'code': 'x'}"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure(raw: bytes, failure: str) -> None:
    assert read_answer(exchanged(raw)) == Answer(failure=failure)


def test_given_a_connection_that_breaks_within_a_chunk_then_the_answer_is_a_failure() -> None:
    broken = (STREAMED + chunked(stream(), 64))[:-40]

    assert read_answer(exchanged(broken)).failure == (
        f"not an event stream: ValueError: the connection ended after {len(broken)} bytes, within a chunk"
    )


def test_given_another_seed_then_no_prompt_is_the_same_and_lengths_stay_within_bounds() -> None:
    mixed = WORKLOADS["mixed"]
    texts = {question.text for seed in (1, 2) for question in mixed.questions(seed)}
    lengths = [question.max_tokens for question in mixed.questions(1)]

    assert len(texts) == 2 * mixed.num_requests
    assert 8 <= min(lengths) < max(lengths) <= 128
    assert mixed.questions(1) == mixed.questions(1)


def test_given_a_shared_prefix_then_all_prompts_begin_with_it() -> None:
    questions = WORKLOADS["shared"].questions(5)
    words = [question.text.split() for question in questions]

    assert {tuple(own[:1024]) for own in words} == {tuple(words[0][:1024])}
    assert {len(own) for own in words} == {1024 + 64}


def test_quick_workloads_are_an_eighth_as_long_with_one_request_a_client() -> None:
    quick, beside, batch = selected(["shared", "beside", "batch"], is_quick=True)

    assert (quick.num_requests, quick.prompt_tokens, quick.shared_tokens, quick.max_tokens) == (16, 8, 128, (8, 8))
    assert (beside.num_requests, beside.batch_lines) == (4, 62)
    assert (batch.questions(1), len(batch.lines(1))) == ([], 24)
