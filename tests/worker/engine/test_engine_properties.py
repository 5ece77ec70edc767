"""Whatever comes, goes, is shared or preempted: every job gets exactly its answer."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.doubles import VOCAB_SIZE, Collected, expected_answer, make_engine, make_job, run
from worker.engine.engine import Engine
from worker.protocol.job import Job, JobClass

beginnings = st.sampled_from([(), tuple(range(1, 6)), tuple(range(1, 12))])
prompts = st.lists(
    st.builds(
        lambda head, tail: [*head, *tail],
        beginnings,
        st.lists(st.integers(1, VOCAB_SIZE - 1), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=3,
)
jobs_to_come = st.builds(
    lambda prompts, max_tokens, job_class, n, tenant: make_job(
        *prompts, max_tokens=max_tokens, job_class=job_class, job_fields={"n": n, "tenant": tenant}
    ),
    prompts,
    st.integers(1, 20),
    st.sampled_from(list(JobClass)),
    st.sampled_from([1, 1, 3]),
    st.sampled_from(["a", "b"]),
)
events = st.lists(st.one_of(jobs_to_come, st.integers(0, 9), st.none()), max_size=25)


def act(engine: Engine, jobs: list[Job], cancelled: set[str], event: Job | int | None) -> None:
    if isinstance(event, Job):
        jobs.append(event)
        engine.add(event)
    elif event is not None and jobs:
        job_id = jobs[event % len(jobs)].id
        if engine.cancel(job_id):
            cancelled.add(job_id)


@settings(max_examples=150, deadline=None)
@given(events, st.integers(1, 5), st.integers(1, 5), st.integers(1, 12), st.booleans(), st.integers(0, 6))
def test_whatever_comes_goes_or_is_preempted_every_other_job_gets_exactly_its_answer(
    script: list[Any], page_size: int, max_sequences: int, step_tokens: int, prefix_cache: bool, spare: int
) -> None:
    max_context = 24
    num_pages = -(-max_context // page_size) + spare
    engine, model = make_engine(
        num_pages, page_size, max_sequences, step_tokens, max_context, prefix_cache=prefix_cache
    )
    jobs: list[Job] = []
    cancelled: set[str] = set()
    collected = Collected()
    for event in script:
        act(engine, jobs, cancelled, event)
        if event is None:
            collected.take(engine.step())
        engine.check_conservation()
    run(engine, collected)
    for batch in model.batches:
        assert len(batch.token_ids) <= step_tokens
        assert len(batch.kv_lengths) <= max_sequences
    for job in jobs:
        if job.id not in cancelled:
            answers = [expected_answer(job, choice, max_context) for choice in range(job.num_choices)]
            assert [collected.token_ids(job, choice) for choice in range(job.num_choices)] == answers
            assert collected.terminals[job.id].num_completion_tokens == sum(map(len, answers))
            assert collected.terminals[job.id].num_cached_tokens < job.num_prompt_tokens
