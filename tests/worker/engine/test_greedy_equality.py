"""The whole engine over real networks: greedy answers equal transformers' own, whatever happens around them."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.engine.doubles import Collected, LetterDetokenizer, make_job, run
from tests.worker.models.families import VOCAB_SIZE, config_of, make_network, own_greedy
from worker.engine.engine import Engine, EngineConfig
from worker.engine.startup import load_engine
from worker.models.generic import GenericModel
from worker.protocol.job import Job
from worker.settings import WorkerSettings

NUM_PROMPTS = 20
NUM_TOKENS = 16
MAX_CONTEXT = 64


def random_prompts(seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(3, VOCAB_SIZE) for _ in range(dice.randint(1, 40))] for _ in range(NUM_PROMPTS)]


@pytest.fixture(scope="module")
def network() -> Any:
    return make_network(config_of("Mistral"))


@pytest.fixture(scope="module")
def expected(network: Any) -> list[list[int]]:
    return [own_greedy(network, prompt, NUM_TOKENS) for prompt in random_prompts(1)]


def engine_over(network: Any, page_size: int, num_pages: int, step_tokens: int = 24) -> Engine:
    model = GenericModel(network, page_size)
    model.allocate(num_pages)
    return Engine(model, LetterDetokenizer, EngineConfig(page_size, num_pages, 8, step_tokens, MAX_CONTEXT))


def arrive_one_by_one(engine: Engine, jobs: list[Job]) -> Collected:
    """Each job comes a step after the one before it."""
    collected = Collected()
    for job in jobs:
        engine.add(job)
        collected.take(engine.step())
    return collected


@pytest.mark.parametrize("page_size", [1, 4, 16, 32])
def test_twenty_prompts_that_start_at_different_steps(network: Any, expected: list[list[int]], page_size: int) -> None:
    engine = engine_over(network, page_size, num_pages=512 // page_size)
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in random_prompts(1)]
    collected = run(engine, arrive_one_by_one(engine, jobs))
    assert [collected.token_ids(job) for job in jobs] == expected


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_twenty_prompts_of_which_some_are_preempted_and_some_cancelled(
    network: Any, expected: list[list[int]], page_size: int
) -> None:
    engine = engine_over(network, page_size, num_pages=96 // page_size)
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in random_prompts(1)]
    collected = arrive_one_by_one(engine, jobs)
    for job in jobs[3::5]:
        engine.cancel(job.id)
    run(engine, collected)
    assert engine.stats().num_preemptions_total > 0
    for index, job in enumerate(jobs):
        if index % 5 != 3:
            assert collected.token_ids(job) == expected[index]


def test_a_job_taken_over_from_a_dead_worker(network: Any, expected: list[list[int]]) -> None:
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in random_prompts(1)]
    dead = engine_over(network, page_size=4, num_pages=64)
    published = arrive_one_by_one(dead, jobs)
    heir = engine_over(network, page_size=16, num_pages=32)
    for job in reversed(jobs):
        if job.id not in published.terminals:
            heir.add(job, published.deltas.get(job.id, []))
    collected = run(heir, published)
    assert [collected.token_ids(job) for job in jobs] == expected


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("num_slots", [96, 512])
def test_prompts_that_begin_alike_share_pages_and_keep_their_answers(
    network: Any, page_size: int, num_slots: int
) -> None:
    prompts = random_prompts(6)[:6]
    alike = [[*prompts[i % 3][:17], *prompts[-i - 1]][:40] for i in range(6)]
    expected = [own_greedy(network, prompt, NUM_TOKENS) for prompt in alike]
    engine = engine_over(network, page_size, num_slots // page_size)
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in [*alike, *alike]]
    for job in jobs[:6]:
        engine.add(job)
    collected = run(engine, arrive_one_by_one(engine, jobs[6:]))
    assert [collected.token_ids(job) for job in jobs] == [*expected, *expected]
    if num_slots == 512:  # else what one leaves the next may need at once
        assert sum(terminal.num_cached_tokens for terminal in collected.terminals.values()) > 0


def test_a_sampled_answer_is_the_same_alone_and_in_a_crowd(network: Any) -> None:
    prompts = random_prompts(2)
    sampling: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "seed": 2**64 - 1}
    alone = engine_over(network, page_size=4, num_pages=16)
    job = make_job(prompts[0], max_tokens=NUM_TOKENS, **sampling)
    alone.add(job)
    answer = run(alone).token_ids(job)
    crowded = engine_over(network, page_size=4, num_pages=64)
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS, temperature=1.2) for prompt in prompts[1:]]
    jobs.insert(7, make_job(prompts[0], max_tokens=NUM_TOKENS, **sampling))
    collected = run(crowded, arrive_one_by_one(crowded, jobs))
    assert collected.token_ids(jobs[7]) == answer


def test_different_seeds_and_different_choices_give_different_answers(network: Any) -> None:
    engine = engine_over(network, page_size=4, num_pages=64)
    prompt = random_prompts(3)[0]
    jobs = [make_job(prompt, prompt, max_tokens=NUM_TOKENS, temperature=1.0, seed=seed) for seed in (1, 2)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    answers = {tuple(collected.token_ids(job, choice)) for job in jobs for choice in range(2)}
    assert len(answers) == 4


def test_a_sequence_that_turns_to_nan_leaves_its_neighbours_and_the_next_holders_of_its_pages_alone() -> None:
    network = make_network(config_of("Llama"))
    engine = engine_over(network, page_size=4, num_pages=20)
    prompts = random_prompts(4)[:6]
    own = [own_greedy(network, prompt, NUM_TOKENS) for prompt in prompts]
    poison = next(
        token_id
        for token_id in range(3, VOCAB_SIZE)
        if not any(token_id in [*p, *o] for p, o in zip(prompts, own, strict=True))
    )
    network.get_input_embeddings().weight.data[poison] = torch.nan
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in prompts]
    bad = [make_job([poison] * 9, max_tokens=NUM_TOKENS) for _ in range(3)]
    cut_short = make_job([poison] * 40, max_tokens=NUM_TOKENS)  # cancelled before anyone sees what it computed
    engine.add(cut_short)
    engine.step()
    engine.cancel(cut_short.id)
    arrivals = [bad[0], jobs[0], jobs[1], bad[1], jobs[2], jobs[3], bad[2], jobs[4], jobs[5]]
    collected = run(engine, arrive_one_by_one(engine, arrivals))
    assert [collected.terminals[job.id].state for job in bad] == ["failed"] * 3
    assert [collected.token_ids(job) for job in jobs] == own


def test_smollm2_in_a_crowd_gives_transformers_own_text(smollm2_folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    texts = ["The capital of France is", "Once upon a time", "def add(a, b):", "1, 2, 3,"]
    prompts = [tokenizer.encode(text) for text in texts]
    reference = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
    expected = []
    for prompt in prompts:
        output = reference.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False, pad_token_id=0)
        expected.append(output[0, len(prompt) :].tolist())
    del reference
    settings = WorkerSettings(page_size=16, kv_memory_gib=0.05, dtype="float32", device="cpu", threads=1, step_tokens=8)
    engine = load_engine(settings, str(smollm2_folder))
    jobs = [make_job(prompt, max_tokens=8) for prompt in prompts]
    collected = run(engine, arrive_one_by_one(engine, jobs))
    assert [collected.token_ids(job) for job in jobs] == expected
    assert [collected.text(job) for job in jobs] == [
        tokenizer.decode(ids, skip_special_tokens=True) for ids in expected
    ]
