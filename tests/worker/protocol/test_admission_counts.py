"""Every answer to an admission tells how full the queue is with it."""

from collections.abc import Callable

from tests.worker.protocol.conftest import ROOMY
from worker.protocol.job import Job, JobClass
from worker.protocol.queue import Admission, Bounds, JobQueue, Keeping

NewJob = Callable[..., Job]  # of 18 tokens


def counts(admission: Admission) -> tuple[str, int, int, int]:
    return admission.verdict, admission.num_waiting, admission.tenant_tokens, admission.tokens_ahead


def test_an_admitted_job_is_counted_with_its_class_and_tenant(queue: JobQueue, new_job: NewJob) -> None:
    def admit(tenant: str, job_class: JobClass = JobClass.INTERACTIVE) -> tuple[str, int, int, int]:
        return counts(queue.admit(new_job(tenant, job_class=job_class), ROOMY, Keeping(0, 1000)))

    assert admit("a") == ("admitted", 1, 18, 0)
    assert admit("b") == ("admitted", 2, 18, 18)
    assert admit("a", JobClass.BATCH) == ("admitted", 1, 36, 36)
    assert admit("a") == ("admitted", 3, 54, 36)


def test_a_refused_or_repeated_job_is_not(queue: JobQueue, new_job: NewJob) -> None:
    tight = Bounds(max_depth=1000, max_tokens=10**9, max_tenant_tokens=20, max_wait_ms=10**9)
    first = new_job("a")
    queue.admit(first, tight, Keeping(0, 1000))
    assert counts(queue.admit(first, tight, Keeping(0, 1000))) == ("duplicate", 1, 18, 18)
    assert counts(queue.admit(new_job("a"), tight, Keeping(0, 1000))) == ("tenant", 1, 18, 18)
    assert queue.admit(new_job("b"), tight, Keeping(0, 1000)).wait_s == 0.0
