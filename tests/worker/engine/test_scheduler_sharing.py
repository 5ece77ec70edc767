"""Sequences that share pages, and static batches: who waits for whom, and that no page is ever in wrong hands."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.doubles import make_job
from tests.worker.engine.scheduler_bench import MAX_CONTEXT, Bench, job_like, spans_of
from worker.engine.policy import POLICIES
from worker.engine.sequence import Sequence
from worker.protocol.job import Job, JobClass


def test_those_who_share_a_beginning_wait_for_the_first_to_compute_it_and_others_pass_them() -> None:
    bench = Bench(step_tokens=64, max_sequences=8)
    shared = list(range(8))
    for end in ([50], [51], [52, 53, 54]):
        bench.add_job(job_like([*shared, *end]))
    bench.add(5)
    assert spans_of(bench.step()) == [(1, 0, 9), (4, 0, 5)]
    assert spans_of(bench.step()) == [(1, 9, 10), (2, 8, 9), (4, 5, 6), (3, 8, 11)]


def test_a_beginning_that_fills_no_page_is_not_waited_for() -> None:
    bench = Bench(step_tokens=64)
    for end in (50, 51):
        bench.add_job(job_like([1, 2, 3, end, end]))
    assert spans_of(bench.step()) == [(1, 0, 5), (2, 0, 5)]


def test_nobody_waits_for_a_prefill_of_a_lower_class() -> None:
    bench = Bench(num_pages=32, step_tokens=8)
    bench.add_job(job_like([1] * 20, job_class=JobClass.BATCH))
    bench.step()
    bench.add_job(job_like([1] * 20))
    assert spans_of(bench.step()) == [(2, 8, 16)]


def test_who_waited_for_a_sequence_that_is_gone_computes_the_beginning_itself() -> None:
    bench = Bench(num_pages=32, step_tokens=8)
    first = bench.add_job(job_like([1] * 20))
    bench.add_job(job_like([1] * 20))
    bench.step()
    bench.scheduler.remove(first)
    assert spans_of(bench.step()) == [(2, 0, 8)]


def test_lower_classes_are_not_preempted_when_their_pages_would_still_be_held() -> None:
    """Both hold the same two pages: preempting the batch sequence would free only its third."""
    bench = Bench(num_pages=6, page_size=4, max_sequences=4, step_tokens=64)
    bench.add_job(job_like([1] * 9, max_tokens=3))
    bench.step()
    batch = bench.add_job(job_like([1] * 9, max_tokens=3, job_class=JobClass.BATCH))
    bench.step()
    bench.add_job(job_like([2] * 16, max_tokens=1))
    bench.step()
    assert batch in bench.scheduler.running
    assert bench.scheduler.num_preemptions == 0


def test_a_static_batch_runs_to_its_end_before_the_next_begins() -> None:
    bench = Bench(max_sequences=2, policy="static")
    for max_tokens in (1, 3, 2, 2):
        bench.add(2, max_tokens)
    steps = []
    while spans := bench.step():
        steps.append([span.sequence.rank[2] for span in spans])
    assert steps == [[1, 2], [2], [2], [3, 4], [3, 4]]


def test_who_comes_while_a_static_batch_runs_waits_for_the_next() -> None:
    bench = Bench(max_sequences=4, policy="static")
    bench.add(2, 3)
    bench.step()
    bench.add(2, 1, JobClass.INTERACTIVE)
    steps = [[span.sequence.rank[2] for span in bench.step()] for _ in range(3)]
    assert steps == [[1], [1], [2]]


def test_a_static_batch_that_does_not_fit_at_once_is_still_one_batch() -> None:
    bench = Bench(num_pages=10, page_size=4, max_sequences=3, policy="static", step_tokens=64)
    members = [bench.add(30, 3) for _ in range(3)]
    outsider = bench.add(1, 1)
    while not all(member.is_at_limit for member in members):
        assert outsider in bench.scheduler.waiting
        bench.step()
    bench.step()
    assert outsider.is_at_limit


@dataclass(frozen=True)
class Arrival:
    """A prompt cut out of few texts, so that many begin alike."""

    text: int
    length: int
    max_tokens: int
    tenant: str
    job_class: JobClass
    timeout_ms: int

    def job(self, second: int) -> Job:
        prompt = [*[self.text % 2] * min(self.length, 9), *[self.text] * max(0, self.length - 9)]
        fields = {"tenant": self.tenant, "job_class": self.job_class, "timeout_ms": self.timeout_ms}
        return make_job(prompt, max_tokens=self.max_tokens, job_fields={**fields, "created_s": second})


kin = st.builds(
    Arrival,
    text=st.integers(0, 3),
    length=st.integers(1, 30),
    max_tokens=st.integers(1, 12),
    tenant=st.sampled_from(["a", "b"]),
    job_class=st.sampled_from(list(JobClass)),
    timeout_ms=st.sampled_from([0, 3_000, 900_000]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(kin, st.integers(0, 20), st.none()), max_size=50),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 24),
    st.integers(0, 8),
    st.sampled_from(POLICIES),
)
def test_whatever_is_shared_no_page_is_in_wrong_hands_and_everyone_ends(
    script: list[Arrival | int | None], page_size: int, max_sequences: int, step_tokens: int, spare: int, policy: str
) -> None:
    num_pages = -(-MAX_CONTEXT // page_size) + spare
    bench = Bench(num_pages, page_size, max_sequences, step_tokens, policy)
    sequences: list[Sequence] = []
    removed: set[int] = set()
    for second, action in enumerate(script):  # an arrival, a removal, or a step; Bench checks every step
        if isinstance(action, Arrival):
            sequences.append(bench.add_job(action.job(second)))
        elif isinstance(action, int) and sequences:
            bench.scheduler.remove(sequences[action % len(sequences)])
            removed.add(action % len(sequences))
        else:
            bench.step()
    for _ in range(20_000):
        if not bench.step():
            break
    assert bench.num_available == num_pages
    for index, sequence in enumerate(sequences):
        assert index in removed or sequence.is_at_limit
