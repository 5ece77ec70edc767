"""What lies in Redis stays readable: jobs and events of an older worker or API, and what a default costs."""

import math

import msgspec

from worker.protocol.event import (
    Delta,
    Terminal,
    TokenLogprob,
    TokenLogprobs,
    decode_event,
    decode_frame,
    encode_event,
)
from worker.protocol.job import Job, SamplingParams, decode_job, encode_job

OLD_JOB = {
    "id": "cmpl-m-1", "pool": "m", "tenant": "t", "prompts": [[1, 2], [3]], "expected_tokens": 5,
    "sampling": {"max_tokens": 7, "seed": 3, "stop": ["x"]},
}  # fmt: skip


def test_a_job_from_before_penalties_and_several_answers_is_read_as_one_without_them() -> None:
    job = decode_job(msgspec.msgpack.encode(OLD_JOB))
    assert job.sampling == SamplingParams(max_tokens=7, seed=3, stop=("x",))
    assert (job.n, job.num_choices, job.cost) == (1, 2, 3 + 2 * 5)


def test_a_job_without_the_new_parameters_is_written_as_before() -> None:
    assert msgspec.msgpack.decode(encode_job(decode_job(msgspec.msgpack.encode(OLD_JOB)))) == OLD_JOB


def test_every_sampling_parameter_survives_the_queue() -> None:
    sampling = SamplingParams(
        max_tokens=7, seed=-(2**63), temperature=0.5, top_p=0.9, top_k=3, min_p=0.1, presence_penalty=-1.5,
        frequency_penalty=0.25, repetition_penalty=1.1, logit_bias=((5, -100.0), (0, 1.5)), stop=("a", "b"),
        stop_token_ids=(4, 9), min_tokens=2, ignore_eos=True, logprobs=0, prompt_logprobs=3, include_stop=True,
        grammar="{}",
    )  # fmt: skip
    job = Job(id="i", pool="p", tenant="t", prompts=((1, 2), (3,)), sampling=sampling, expected_tokens=5, n=4)
    assert decode_job(encode_job(job)) == job
    assert (job.num_choices, job.num_prompt_tokens, job.cost) == (8, 3, 3 + 8 * 5)


def test_a_delta_from_before_logprobs_is_read_and_what_a_delta_lacks_costs_a_byte_each() -> None:
    old = msgspec.msgpack.encode(["delta", 0, [5], "x", None])
    assert decode_event(old) == Delta(0, (5,), "x")
    assert len(encode_event(Delta(0, (5,), "x"))) == len(old) + 3


def test_an_end_from_before_times_is_read_and_a_time_survives() -> None:
    old = msgspec.msgpack.encode(["terminal", "succeeded", "", "", 1, 2, 0])
    assert decode_event(old) == Terminal("succeeded", num_prompt_tokens=1, num_completion_tokens=2)
    assert decode_event(encode_event(Terminal("succeeded", ended_s=2**33))) == Terminal("succeeded", ended_s=2**33)


def test_logprobs_survive_the_queue_and_a_frame() -> None:
    best = TokenLogprob(5, -0.25, b" caf\xc3")
    delta = Delta(1, (5,), "", None, (TokenLogprobs(best, (best, TokenLogprob(6, -math.inf, b""))),))
    assert decode_event(encode_event(delta)) == delta
    row = msgspec.msgpack.encode([["job", 3, msgspec.Raw(encode_event(delta))]])
    assert decode_frame(row) == [("job", 3, delta)]
    assert decode_event(encode_event(Terminal("succeeded", num_cached_tokens=9))).num_cached_tokens == 9  # type: ignore[union-attr]
