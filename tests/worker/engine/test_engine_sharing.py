"""Prompts that begin alike, and several answers to one: what is computed once, and for whom."""

from tests.worker.engine.doubles import Collected, endless, expected_answer, long_prompt, make_engine, make_job, run
from worker.protocol.event import Terminal
from worker.protocol.job import JobClass


def test_a_prompt_seen_before_is_not_computed_again() -> None:
    engine, model = make_engine()
    prompt = long_prompt(18)
    for job, num_cached in [(make_job(prompt), 0), (make_job(prompt), 16), (make_job([*prompt[:9], 2, 2]), 8)]:
        engine.add(job)
        before = len(model.batches)
        collected = run(engine)
        assert collected.token_ids(job) == expected_answer(job)
        assert collected.terminals[job.id].num_cached_tokens == num_cached
        assert len(model.batches[before].token_ids) == len(job.prompts[0]) - num_cached


def test_the_next_turn_of_a_talk_finds_the_answer_before_it() -> None:
    engine, _ = make_engine()
    first = endless(long_prompt(6), max_tokens=10)
    engine.add(first)
    answer = run(engine).token_ids(first)
    second = make_job([*first.prompts[0], *answer, 3, 3])
    engine.add(second)
    collected = run(engine)
    assert collected.token_ids(second) == expected_answer(second)
    assert collected.terminals[second.id].num_cached_tokens == 12  # the last token of the answer was never computed


def test_another_tenant_never_finds_a_prompt() -> None:
    engine, _ = make_engine()
    for tenant, num_cached in [("one", 0), ("two", 0), ("one", 16)]:
        job = make_job(long_prompt(18), job_fields={"tenant": tenant})
        engine.add(job)
        assert run(engine).terminals[job.id].num_cached_tokens == num_cached


def test_with_the_prefix_cache_off_nothing_is_kept() -> None:
    engine, _ = make_engine(prefix_cache=False)
    for _ in range(2):
        job = make_job(long_prompt(18))
        engine.add(job)
        collected = run(engine)
        assert collected.token_ids(job) == expected_answer(job)
        assert collected.terminals[job.id].num_cached_tokens == 0
        assert engine.stats().num_cached_pages == 0


def test_a_burst_of_like_prompts_computes_their_beginning_once() -> None:
    engine, model = make_engine(step_tokens=64)
    jobs = [make_job([*long_prompt(17), 5 + i], max_tokens=1) for i in range(6)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    assert [len(batch.token_ids) for batch in model.batches] == [18, 5 * 2]
    assert [collected.token_ids(job) for job in jobs] == [expected_answer(job) for job in jobs]
    assert [collected.terminals[job.id].num_cached_tokens for job in jobs] == [0, 16, 16, 16, 16, 16]


def test_cached_pages_are_free_for_others_and_counted_so() -> None:
    engine, _ = make_engine(num_pages=8, page_size=4, max_context=32)
    engine.add(make_job(long_prompt(13), max_tokens=1))
    run(engine)
    stats = engine.stats()
    assert (stats.num_free_pages, stats.num_cached_pages, stats.num_held_pages) == (5, 3, 0)
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == 32
    job = endless(long_prompt(20, 30), max_tokens=12)
    engine.add(job)
    assert run(engine).token_ids(job) == expected_answer(job, max_context=32)


def test_a_preempted_sequence_comes_back_to_the_pages_that_are_left_of_it() -> None:
    engine, model = make_engine(num_pages=8, page_size=2, max_context=16)
    jobs = [endless(long_prompt(3, 5 * i), max_tokens=12) for i in range(5)]
    for job in jobs:
        engine.add(job)
    run(engine)
    num_again = sum(len(batch.token_ids) for batch in model.batches)
    bare, bare_model = make_engine(num_pages=8, page_size=2, max_context=16, prefix_cache=False)
    for job in jobs:
        bare.add(job)
    run(bare)
    assert bare.stats().num_preemptions_total > 0
    assert num_again < sum(len(batch.token_ids) for batch in bare_model.batches)


def test_a_job_taken_over_finds_what_its_first_owner_left_in_the_same_pool() -> None:
    engine, model = make_engine()
    job = endless(long_prompt(10), max_tokens=12)
    engine.add(job)
    deltas = [delta for _ in range(8) for output in engine.step() for delta in output.deltas]
    engine.cancel(job.id)
    engine.add(job, deltas)
    before = len(model.batches)
    collected = run(engine)
    assert len(model.batches[before].token_ids) == 2  # 18 tokens, of which 16 were found
    assert [id for delta in deltas for id in delta.token_ids] + collected.token_ids(job) == expected_answer(job)
    assert collected.terminals[job.id].num_cached_tokens == 10


def test_several_answers_to_a_prompt_share_its_pages_and_differ_by_their_draws() -> None:
    for prefix_cache in (True, False):
        engine, model = make_engine(step_tokens=64, end_token_ids=frozenset(), prefix_cache=prefix_cache)
        job = make_job(long_prompt(18), long_prompt(6, 30), max_tokens=6, temperature=5.0, job_fields={"n": 3})
        engine.add(job)
        collected = Collected()
        collected.take(engine.step())
        collected.take(engine.step())
        assert [len(batch.token_ids) for batch in model.batches] == [18 + 6, 2 + 2 * 2 + 2 * 2]
        assert engine.stats().num_held_pages == (4 + 3) + (1 + 3)  # shared ones, and each its own last
        run(engine, collected)
        answers = [tuple(collected.token_ids(job, choice)) for choice in range(6)]
        assert len(set(answers)) == 6
        assert {len(answer) for answer in answers} == {6}
        assert collected.terminals[job.id] == Terminal("succeeded", "", "", 24, 36, 0)
        assert engine.stats().num_prompt_tokens_total == 24


def test_greedy_answers_to_one_prompt_are_all_the_same() -> None:
    engine, _ = make_engine(num_pages=12, max_context=40)
    job = endless(long_prompt(11), max_tokens=10, job_fields={"n": 5})
    engine.add(job)
    collected = run(engine)
    assert [collected.token_ids(job, choice) for choice in range(5)] == [expected_answer(job)] * 5


def test_a_promise_counts_shared_pages_once() -> None:
    engine, _ = make_engine(num_pages=20, page_size=4)
    engine.add(make_job(long_prompt(9), job_fields={"n": 3, "expected_tokens": 3}))
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == (20 - (3 + 1 + 1)) * 4
