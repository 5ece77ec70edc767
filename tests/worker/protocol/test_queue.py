"""Admission, fairness and the ways out of the queue, against a real broker."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.worker.protocol.conftest import INFO, LEASE_MS, ROOMY, rooms
from worker.protocol.connection import connect
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, JobClass
from worker.protocol.queue import Bounds, JobQueue, Keeping
from worker.protocol.worker_lease import ClaimedJob, Room, Row, WorkerLease

NewWorker = Callable[[str], WorkerLease]
NewJob = Callable[..., Job]
Elapse = Callable[[float], None]


def admit(queue: JobQueue, job: Job, bounds: Bounds = ROOMY, watch_ms: int = 0, key: str = "") -> str:
    return queue.admit(job, bounds, Keeping(watch_ms, 60_000, key)).verdict


def claim(worker: WorkerLease, number: int = 1, room: int = 10**6, max_jobs: int = 100) -> list[ClaimedJob]:
    return worker.claim(number, rooms(room, max_jobs), page_size=1, fingerprint="f")


def test_a_worker_without_a_lease_gets_nothing(
    client: redis.Redis, pool: str, queue: JobQueue, new_job: NewJob
) -> None:
    admit(queue, new_job())
    stranger = WorkerLease(client, pool, "stranger", LEASE_MS)
    assert claim(stranger, 1) == []
    stranger.renew([], 0, INFO)
    assert len(claim(stranger, 1)) == 1


def keep_ticking_until(queue: JobQueue, condition: Callable[[], bool], max_attempts: int = 3) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the queue's clock did not do its work"
        queue.requeue_expired(LEASE_MS, max_attempts)
        time.sleep(0.2)


def test_800_racing_admissions_against_a_depth_of_50_admit_exactly_50(
    broker_url: str, pool: str, new_job: NewJob
) -> None:
    bounds = Bounds(max_depth=50, max_tokens=10**9, max_tenant_tokens=10**9, max_wait_ms=10**9)
    verdicts: Counter[str] = Counter()

    def race() -> None:
        queue = JobQueue(connect(broker_url), pool)
        verdicts.update([admit(queue, new_job(), bounds) for _ in range(100)])

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {"admitted": 50, "depth": 750}
    assert JobQueue(connect(broker_url), pool).snapshot().depth[JobClass.INTERACTIVE] == 50


def test_token_bound_counts_prompt_and_expected_answer(queue: JobQueue, new_job: NewJob) -> None:
    bounds = Bounds(max_depth=10, max_tokens=40, max_tenant_tokens=10**9, max_wait_ms=10**9)
    assert [admit(queue, new_job(), bounds) for _ in range(3)] == ["admitted", "admitted", "tokens"]
    assert queue.snapshot().tokens == {JobClass.INTERACTIVE: 36, JobClass.BATCH: 0}


def test_batch_jobs_never_use_up_the_interactive_bound(queue: JobQueue, new_job: NewJob) -> None:
    bounds = Bounds(max_depth=1, max_tokens=10**9, max_tenant_tokens=10**9, max_wait_ms=10**9)
    assert admit(queue, new_job(job_class=JobClass.BATCH), bounds) == "admitted"
    assert admit(queue, new_job(job_class=JobClass.BATCH), bounds) == "depth"
    assert admit(queue, new_job(), bounds) == "admitted"


def test_a_tenants_share_counts_running_jobs_and_comes_back_at_their_end(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    bounds = Bounds(max_depth=10, max_tokens=10**9, max_tenant_tokens=20, max_wait_ms=10**9)
    worker = new_worker("w")
    assert admit(queue, new_job(), bounds) == "admitted"
    [claimed] = claim(worker)
    assert admit(queue, new_job(), bounds) == "tenant"
    assert admit(queue, new_job(tenant="other"), bounds) == "admitted"
    worker.publish_step([Row(claimed.job.id, claimed.fence, 1, Terminal("succeeded"))])
    assert admit(queue, new_job(), bounds) == "admitted"


def test_an_idempotency_key_names_one_job_per_tenant(queue: JobQueue, new_job: NewJob) -> None:
    first = new_job()
    assert admit(queue, first, key="k") == "admitted"
    again = queue.admit(new_job(), ROOMY, Keeping(0, 1000, "k"))
    assert (again.verdict, again.job_id) == ("duplicate", first.id)
    assert admit(queue, new_job(tenant="other"), key="k") == "admitted"


def test_a_tenant_with_many_jobs_does_not_delay_one_with_few(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    for _ in range(10):
        admit(queue, new_job(tenant="many"))
    for _ in range(2):
        admit(queue, new_job(tenant="few"))
    admit(queue, new_job(tenant="many", job_class=JobClass.BATCH))
    order = [claimed.job.tenant for claimed in claim(new_worker("w"))]
    assert sorted(order[:4]) == ["few", "few", "many", "many"]
    assert order[4:] == ["many"] * 9


def test_a_claim_takes_no_more_than_the_room_and_keeps_the_order(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    jobs = [new_job(num_prompt_tokens=100), new_job(num_prompt_tokens=100), new_job(num_prompt_tokens=1)]
    for job in jobs:
        admit(queue, job)
    worker = new_worker("w")
    assert [c.job.id for c in claim(worker, 1, room=110)] == [jobs[0].id]
    assert claim(worker, 2, room=107) == []
    rounded = worker.claim(3, rooms(122, 9), page_size=16, fingerprint="f")
    assert rounded == [], "15 slots of the last page may go unused"


def test_a_claim_whose_reply_was_lost_returns_the_same_jobs(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    job = new_job()
    admit(queue, job)
    worker = new_worker("w")
    assert claim(worker, 7) == claim(worker, 7) == [ClaimedJob(job, 1, 0, ())]
    assert worker.renew([], 6, INFO) == [], "the reply of claim 7 is still on its way"
    assert claim(worker, 7) == [ClaimedJob(job, 1, 0, ())]
    assert worker.renew([], 7, INFO) == []
    assert queue.describe(job.id)["state"] == "queued", "the worker saw the reply and does not hold the job"


def test_a_renewal_that_several_claims_have_overtaken_takes_nothing_away(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    jobs = [new_job(), new_job()]
    worker = new_worker("w")
    for number, job in enumerate(jobs, start=1):
        admit(queue, job)
        assert [claimed.job.id for claimed in claim(worker, number)] == [job.id]
    assert worker.renew([], 0, INFO) == []
    assert [queue.describe(job.id)["state"] for job in jobs] == ["running", "running"]
    assert worker.renew([], 1, INFO) == []
    assert [queue.describe(job.id)["state"] for job in jobs] == ["queued", "running"]


def test_a_job_that_a_worker_cannot_read_fails_alone(
    client: redis.Redis, pool: str, queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    foreign, fine = new_job(), new_job()
    for job in (foreign, fine):
        admit(queue, job)
    client.hset(f"headrace:{{{pool}}}:job:{foreign.id}", "body", b"\x81\xa1x\x01")
    assert [claimed.job.id for claimed in claim(new_worker("w"))] == [fine.id]
    [terminal] = queue.replay(foreign.id, 0)
    assert isinstance(terminal, Terminal)
    assert (terminal.state, terminal.code) == ("failed", "unreadable")


def test_a_repeated_or_overtaken_step_changes_nothing(queue: JobQueue, new_worker: NewWorker, new_job: NewJob) -> None:
    admit(queue, new_job())
    worker = new_worker("w")
    [claimed] = claim(worker)
    rows = [Row(claimed.job.id, 1, 1, Delta(0, (5,), "a")), Row(claimed.job.id, 1, 2, Delta(0, (6,), "b"))]
    for _ in range(2):
        assert worker.publish_step(rows).lost == []
    assert queue.replay(claimed.job.id, 0) == [Delta(0, (5,), "a"), Delta(0, (6,), "b")]
    assert worker.publish_step([Row(claimed.job.id, 1, 9, Delta(0, (7,), "c"))]).short == {claimed.job.id: 2}


def test_a_dead_workers_job_goes_on_elsewhere_and_its_zombie_is_fenced_off(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    job = new_job()
    admit(queue, job)
    dead = new_worker("dead")
    claim(dead)
    dead.publish_step([Row(job.id, 1, 1, Delta(0, (5,), "a"))])
    keep_ticking_until(queue, lambda: queue.describe(job.id)["state"] == "queued")
    heir = new_worker("heir")
    assert claim(heir) == [ClaimedJob(job, 2, 1, (Delta(0, (5,), "a"),))]
    assert dead.publish_step([Row(job.id, 1, 2, Delta(0, (9,), "zombie"))]).lost == [job.id]
    assert dead.finish(job.id, 1, Terminal("failed")) is False
    heir.publish_step([Row(job.id, 2, 2, Terminal("succeeded"))])
    assert queue.replay(job.id, 0) == [Delta(0, (5,), "a"), Terminal("succeeded")]


def past_its_crash(worker: WorkerLease, suspect: ClaimedJob) -> None:
    """As far as is enough after four deaths."""
    first = len(suspect.replay) + 1
    rows = [Row(suspect.job.id, suspect.fence, n, Delta(0, (n,), "x")) for n in range(first, first + 33)]
    worker.publish_step(rows)


def test_a_worker_tries_one_suspect_and_one_more_at_a_time_for_each_that_gets_past_its_crash(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    for _ in range(8):
        admit(queue, new_job())
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.snapshot().depth[JobClass.INTERACTIVE] == 8)
    fresh = new_job()
    admit(queue, fresh)
    heir, num_claims = new_worker("heir"), itertools.count(1)
    first = claim(heir, next(num_claims))
    assert [c.num_attempts for c in first] == [1, 0]
    assert claim(heir, next(num_claims)) == []
    on_trial, num_claimed = first[:1], []
    while on_trial:
        past_its_crash(heir, on_trial.pop(0))
        taken = claim(heir, next(num_claims))
        num_claimed.append(len(taken))
        on_trial += taken
    assert num_claimed == [2, 2, 2, 1, 0, 0, 0, 0]


def test_suspects_that_end_on_trial_make_room_for_more(queue: JobQueue, new_worker: NewWorker, new_job: NewJob) -> None:
    for _ in range(3):
        admit(queue, new_job())
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.snapshot().depth[JobClass.INTERACTIVE] == 3)
    heir = new_worker("heir")
    [suspect] = claim(heir, 1)
    heir.publish_step([Row(suspect.job.id, suspect.fence, 1, Terminal("succeeded"))])
    assert [c.num_attempts for c in claim(heir, 2)] == [1, 1]


def test_suspects_that_die_together_end_with_neither_and_each_is_tried_alone_next(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(4)]
    for job in jobs:
        admit(queue, job)
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.snapshot().depth[JobClass.INTERACTIVE] == 4)
    second = new_worker("second")
    [cleared] = claim(second, 1)
    past_its_crash(second, cleared)
    together = {c.job.id for c in claim(second, 2)}
    keep_ticking_until(queue, lambda: queue.snapshot().depth[JobClass.INTERACTIVE] == 4, max_attempts=2)
    blamed_twice = {job.id for job in jobs if queue.describe(job.id)["attempts"] == "2"}
    assert blamed_twice == together

    third = new_worker("third")
    [untried, goes_on] = claim(third, 1)
    assert (untried.num_attempts, goes_on.job.id) == (1, cleared.job.id), "those blamed twice come last"
    assert claim(third, 2) == []
    for one in (untried, goes_on):
        past_its_crash(third, one)
    [alone] = claim(third, 3)
    assert claim(third, 4) == []
    keep_ticking_until(queue, lambda: queue.describe(alone.job.id)["state"] == "failed", max_attempts=2)
    [spared] = together - {alone.job.id}
    assert (queue.describe(spared)["state"], queue.describe(spared)["attempts"]) == ("queued", "2")


def test_of_jobs_that_lost_their_worker_together_the_interactive_one_is_tried_first(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    urgent = new_job()
    for job in (*(new_job(job_class=JobClass.BATCH) for _ in range(8)), urgent):
        admit(queue, job)
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.snapshot().depth[JobClass.BATCH] == 8)
    assert [one.job.id for one in claim(new_worker("heir"))] == [urgent.id]


def test_a_batch_suspect_on_trial_makes_way_for_an_interactive_one(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    patient, urgent = new_job(job_class=JobClass.BATCH), new_job()
    admit(queue, patient)
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.describe(patient.id)["state"] == "queued")
    heir = new_worker("heir")
    [on_trial] = claim(heir, 1)
    admit(queue, urgent)
    claim(new_worker("dead too"))

    def is_lost() -> bool:
        heir.renew([patient.id], 1, INFO)
        return queue.describe(urgent.id)["attempts"] == "1"

    keep_ticking_until(queue, is_lost)
    [tried] = claim(heir, 2)
    assert (tried.job.id, queue.describe(patient.id)["state"]) == (urgent.id, "queued")
    row = Row(patient.id, on_trial.fence, 1, Delta(0, (5,), "a"))
    assert heir.publish_step([row]).lost == [patient.id]
    heir.publish_step([Row(urgent.id, tried.fence, 1, Terminal("succeeded"))])
    assert [one.job.id for one in claim(heir, 3)] == [patient.id]
    assert queue.describe(patient.id)["attempts"] == "1", "to make way is no attempt"


def test_of_batch_suspects_on_trial_only_as_many_make_way_as_must(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    for _ in range(3):
        admit(queue, new_job(job_class=JobClass.BATCH))
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.snapshot().depth[JobClass.BATCH] == 3)
    heir = new_worker("heir")
    [cleared] = claim(heir, 1)
    past_its_crash(heir, cleared)
    held = [cleared.job.id, *(one.job.id for one in claim(heir, 2))]
    urgent = new_job()
    admit(queue, urgent)
    claim(new_worker("dead too"))

    def is_lost() -> bool:
        heir.renew(held, 2, INFO)
        return queue.describe(urgent.id)["attempts"] == "1"

    keep_ticking_until(queue, is_lost)
    assert [one.job.id for one in claim(heir, 3)] == [urgent.id]
    assert [queue.describe(job_id)["state"] for job_id in held] == ["running", "running", "queued"]


def test_a_suspect_that_needs_much_room_is_not_overtaken_for_ever(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    large = new_job(num_prompt_tokens=100)
    admit(queue, large)
    claim(new_worker("dead"))
    keep_ticking_until(queue, lambda: queue.describe(large.id)["state"] == "queued")
    small = new_job()
    admit(queue, small)
    heir = new_worker("heir")
    assert claim(heir, 1, room=50) == []
    assert [c.job.id for c in claim(heir, 2)] == [large.id, small.id]


def test_only_the_suspect_is_blamed_for_the_death_of_the_worker_that_tries_it(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    poison, innocent = new_job(), new_job()
    admit(queue, poison)
    for attempt in range(3):
        worker = new_worker(f"w{attempt}")
        assert [claimed.job.id for claimed in claim(worker, 1)] == [poison.id]
        if attempt == 1:
            admit(queue, innocent)
            [beside] = claim(worker, 2)
            past_its_crash(worker, beside)
        keep_ticking_until(queue, lambda: queue.describe(poison.id)["state"] != "running")
    assert (queue.describe(poison.id)["state"], queue.describe(innocent.id)["attempts"]) == ("failed", "0")


@pytest.mark.parametrize("max_attempts", [2, 3])
def test_a_poison_job_that_comes_while_others_are_on_trial_takes_none_of_them_with_it(
    max_attempts: int, queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    innocents, poison = [new_job() for _ in range(3)], new_job()
    for job in innocents:
        admit(queue, job)
    claim(new_worker("killed"))
    keep_ticking_until(queue, lambda: queue.snapshot().num_running == 0)
    admit(queue, poison)
    deaths = 0
    while queue.describe(poison.id)["state"] != "failed":
        worker = new_worker(f"w{deaths}")
        for number in itertools.count(1):
            taken = claim(worker, number)
            if poison.id in [one.job.id for one in taken]:
                break
            for one in taken:
                past_its_crash(worker, one)
        deaths += 1
        keep_ticking_until(queue, lambda: queue.snapshot().num_running == 0, max_attempts)
    assert deaths == 4
    assert {queue.describe(job.id)["state"] for job in innocents} == {"queued"}


def kill(client: redis.Redis, pool: str, queue: JobQueue, name: str, max_attempts: int) -> None:
    """The worker's lease is over."""
    queue.requeue_expired(LEASE_MS, max_attempts)
    client.zadd(f"headrace:{{{pool}}}:workers", {name: 1})
    queue.requeue_expired(LEASE_MS, max_attempts)


def serve_until_it_dies(worker: WorkerLease, poison: Job, num_steps: int) -> None:
    """All that the worker claims advances a token a step, until the poison job has advanced by `num_steps`."""
    lengths, held = dict[str, int](), list[ClaimedJob]()
    for number in itertools.count(1):
        taken = claim(worker, number)
        held += taken
        lengths |= {one.job.id: len(one.replay) for one in taken}
        for one in held:
            if one.job.id == poison.id and lengths[poison.id] == len(one.replay) + num_steps:
                return
        lengths = {job_id: length + 1 for job_id, length in lengths.items()}
        worker.publish_step([Row(one.job.id, one.fence, lengths[one.job.id], Delta(0, (5,), "x")) for one in held])


@pytest.mark.parametrize("steps_and_deaths", [(0, 3), (10, 12)])
def test_a_long_stream_outlives_one_poison_job_after_the_other(
    steps_and_deaths: tuple[int, int],
    client: redis.Redis,
    pool: str,
    queue: JobQueue,
    new_worker: NewWorker,
    new_job: NewJob,
) -> None:
    """Each kills its worker when it has advanced by so much, also if it gets further each time."""
    num_steps, most_deaths = steps_and_deaths
    stream, names = new_job(), [f"w{number}" for number in range(99)]
    admit(queue, stream)
    for _ in range(5):
        poison, deaths = new_job(), 0
        admit(queue, poison)
        while queue.describe(poison.id)["state"] != "failed":
            serve_until_it_dies(new_worker(names[0]), poison, num_steps)
            queue.requeue_expired(LEASE_MS, 2)
            client.zadd(f"headrace:{{{pool}}}:workers", {names.pop(0): 1})
            queue.requeue_expired(LEASE_MS, 2)
            deaths += 1
        assert deaths <= most_deaths
        assert queue.describe(stream.id)["state"] == "queued"


@pytest.mark.parametrize("is_leaving", [True, False])
def test_a_suspect_that_is_handed_back_on_trial_stays_a_suspect(
    is_leaving: bool, client: redis.Redis, pool: str, queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    job = new_job()
    admit(queue, job)
    claim(new_worker("killed"))
    keep_ticking_until(queue, lambda: queue.snapshot().num_running == 0)
    worker = new_worker("w")
    claim(worker, 1)
    if is_leaving:
        worker.requeue([], is_leaving=True)
    else:
        worker.renew([], 1, INFO)
    assert client.zrange(f"headrace:{{{pool}}}:suspects", 0, -1) == [job.id.encode()]
    assert queue.describe(job.id)["attempts"] == "1", "to be handed back is no attempt"


def test_rows_of_a_job_from_before_it_came_back_to_the_same_worker_are_passed_over(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    job = new_job()
    admit(queue, job)
    worker = new_worker("w")
    claim(worker, 1)
    worker.renew([], 1, INFO)
    [again] = claim(worker, 2)
    old, new = (
        Row(job.id, again.fence - 1, 1, Delta(0, (5,), "old")),
        Row(job.id, again.fence, 1, Terminal("succeeded")),
    )
    assert worker.publish_step([old, new]).lost == []
    assert queue.replay(job.id, 0) == [Terminal("succeeded")]


def test_a_poison_job_fails_after_its_attempts_and_says_why(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    job = new_job()
    admit(queue, job)
    for attempt in range(3):
        assert len(claim(new_worker(f"w{attempt}"))) == 1
        keep_ticking_until(queue, lambda: queue.describe(job.id)["state"] != "running")
    [terminal] = queue.replay(job.id, 0)
    assert isinstance(terminal, Terminal)
    assert (terminal.state, terminal.code) == ("failed", "worker_lost")
    assert queue.snapshot().num_running == 0


def test_handing_back_is_no_attempt_and_goes_ahead_of_new_work(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    job = new_job()
    admit(queue, job)
    leaving, heir = new_worker("leaving"), new_worker("heir")
    assert [worker.name for worker in queue.snapshot().workers] == ["leaving", "heir"]
    claim(leaving)
    admit(queue, new_job())
    assert leaving.requeue([(job.id, 1)], is_leaving=True) == 1
    assert [worker.name for worker in queue.snapshot().workers] == ["heir"]
    claimed = claim(heir)
    assert (claimed[0].job.id, claimed[0].num_attempts) == (job.id, 0)


def test_cancel_ends_waiting_and_running_jobs_once(queue: JobQueue, new_worker: NewWorker, new_job: NewJob) -> None:
    running, waiting = new_job(), new_job()
    worker = new_worker("w")
    admit(queue, running)
    claim(worker)
    admit(queue, waiting)
    assert queue.cancel(waiting.id, "client_gone", "x") == "queued"
    assert queue.cancel(running.id, "client_gone", "x") == "running"
    assert queue.cancel(running.id, "client_gone", "x") == "cancelled"
    assert queue.cancel("chatcmpl-none", "client_gone", "x") == "unknown"
    assert worker.renew([running.id], 1, INFO) == [running.id]
    assert claim(worker, 2) == []
    for job in (running, waiting):
        assert queue.replay(job.id, 0) == [Terminal("cancelled", "client_gone", "x")]


def test_deadlines_and_missing_watchers_end_jobs(queue: JobQueue, new_worker: NewWorker, new_job: NewJob) -> None:
    late, unwatched, kept = new_job(timeout_ms=300), new_job(), new_job()
    admit(queue, late)
    admit(queue, unwatched, watch_ms=300)
    admit(queue, kept, watch_ms=300)
    assert queue.watch([kept.id, "chatcmpl-none"], 60_000) == ["chatcmpl-none"]
    claim(new_worker("w"))
    keep_ticking_until(queue, lambda: queue.snapshot().num_running == 1)
    assert [queue.describe(job.id)["state"] for job in (late, unwatched, kept)] == ["expired", "cancelled", "running"]


def test_a_pause_of_the_broker_expires_nobody(queue: JobQueue, new_worker: NewWorker, new_job: NewJob) -> None:
    admit(queue, new_job())
    claim(new_worker("w"))
    queue.requeue_expired(LEASE_MS, 3)
    time.sleep(LEASE_MS / 1000 + 0.3)  # nobody ticks and nobody renews, as when the broker is away
    assert queue.requeue_expired(LEASE_MS, 3) == {"requeued": 0, "failed": 0, "expired": 0, "abandoned": 0}
    assert queue.requeue_expired(LEASE_MS, 3)["requeued"] == 0
    assert queue.snapshot().num_running == 1


def test_nothing_stays_behind_without_a_time_to_live(
    client: redis.Redis, pool: str, queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    worker = new_worker("w")
    jobs = [new_job() for _ in range(3)]
    for job in jobs:
        admit(queue, job, watch_ms=5000, key=job.id)
    for claimed in claim(worker, max_jobs=2):
        worker.publish_step([Row(claimed.job.id, claimed.fence, 1, Terminal("succeeded"))])
    queue.cancel(jobs[2].id, "x", "y")
    worker.requeue([], is_leaving=True)
    names: list[bytes] = [*client.scan_iter(f"headrace:{{{pool}}}:*")]
    lasting = {name.decode().rpartition("}:")[2] for name in names if client.ttl(name) == -1}
    assert lasting <= {"counters", "drain", "bell:0"}
    counters: Any = client.hgetall(f"headrace:{{{pool}}}:counters")
    assert {name: v for name, v in counters.items() if not name.startswith(b"clock") and v != b"0"} == {}


def test_room_is_claimed_by_class_and_interactive_jobs_find_room_where_batch_jobs_find_none(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    worker = new_worker("w")
    batch = [new_job(job_class=JobClass.BATCH) for _ in range(3)]
    urgent = [new_job() for _ in range(2)]
    for job in (*batch, *urgent):
        admit(queue, job)

    def claimed_ids(number: int, interactive: Room, behind: Room) -> list[str]:
        given = {JobClass.INTERACTIVE: interactive, JobClass.BATCH: behind}
        return [claimed.job.id for claimed in worker.claim(number, given, page_size=1, fingerprint="f")]

    roomy = 10**6
    assert claimed_ids(1, Room(roomy, 1), Room(roomy, 0)) == [urgent[0].id]
    assert claimed_ids(2, Room(roomy, 3), Room(roomy, 2)) == [urgent[1].id, batch[0].id]
    assert claimed_ids(3, Room(roomy, 3), Room(batch[1].cost - 1, 3)) == []
    assert claimed_ids(4, Room(0, 0), Room(roomy, 3)) == [batch[1].id, batch[2].id]


def test_a_batch_suspect_that_finds_no_room_keeps_no_interactive_job_waiting(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    suspect, urgent = new_job(job_class=JobClass.BATCH), new_job()
    admit(queue, suspect)
    dead = new_worker("dead")
    claim(dead)
    keep_ticking_until(queue, lambda: queue.describe(suspect.id)["state"] == "queued")
    admit(queue, urgent)
    heir, places = new_worker("heir"), Room(10**6, 1)
    given = {JobClass.INTERACTIVE: places, JobClass.BATCH: Room(10**6, 0)}
    assert [one.job.id for one in heir.claim(1, given, page_size=1, fingerprint="f")] == [urgent.id]
    assert [one.job.id for one in heir.claim(2, rooms(10**6, 1), page_size=1, fingerprint="f")] == [suspect.id]


def test_wait_is_estimated_from_the_measured_drain_rate(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    for _ in range(60):
        admit(queue, new_job())
    worker = new_worker("w")
    number = 0
    while queue.snapshot().drain_rate == 0.0:
        number += 1
        claim(worker, number, max_jobs=1)
        time.sleep(0.1)
    patient = Bounds(max_depth=1000, max_tokens=10**9, max_tenant_tokens=10**9, max_wait_ms=600_000)
    hasty = Bounds(max_depth=1000, max_tokens=10**9, max_tenant_tokens=10**9, max_wait_ms=1)
    snapshot = queue.snapshot()
    refused = queue.admit(new_job(), hasty, Keeping(0, 1000))
    assert refused.verdict == "wait"
    assert refused.wait_s == pytest.approx(snapshot.tokens[JobClass.INTERACTIVE] / snapshot.drain_rate)
    assert admit(queue, new_job(), patient) == "admitted"


@pytest.fixture
def elapse(client: redis.Redis, pool: str) -> Elapse:
    """Lets seconds go by, as far as the drain rate can tell."""

    def shift(seconds: float) -> None:
        for moment in ("since", "last_wait"):
            client.hincrby(f"headrace:{{{pool}}}:drain", moment, -int(seconds * 1000))

    return shift


def test_what_the_first_claim_takes_counts_for_the_time_in_which_the_others_wait(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    jobs = [new_job() for _ in range(10)]
    for job in jobs:
        admit(queue, job)
    worker = new_worker("w")
    claim(worker, 1, max_jobs=8)
    elapse(16.0)
    claim(worker, 2, max_jobs=1)
    assert queue.snapshot().drain_rate == pytest.approx(9 * jobs[0].cost / 16, rel=0.05)


def test_claims_that_bring_nothing_do_not_change_what_is_known(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    jobs = [new_job() for _ in range(10)]
    for job in jobs:
        admit(queue, job)
    worker = new_worker("w")
    claim(worker, 1, max_jobs=8)
    for number in range(2, 10):
        elapse(2.0)
        claim(worker, number, room=0)
    assert queue.snapshot().drain_rate == pytest.approx(8 * jobs[0].cost / 16, rel=0.05)


def test_a_batch_that_waits_says_nothing_of_how_fast_interactive_jobs_are_served(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    for _ in range(9):
        admit(queue, new_job(job_class=JobClass.BATCH))
    worker = new_worker("w")
    for number in range(1, 6):
        admit(queue, new_job())
        claim(worker, number, max_jobs=2)
        elapse(30.0)
    assert queue.snapshot().drain_rate == 0.0


def drained(queue: JobQueue, worker: WorkerLease, new_job: NewJob, elapse: Elapse, *numbers: int) -> float:
    """The rate after claims of one job a second while others wait."""
    for number in numbers:
        while queue.snapshot().depth[JobClass.INTERACTIVE] < 3:
            admit(queue, new_job())
        claim(worker, number, max_jobs=1)
        elapse(1.0)
    return queue.snapshot().drain_rate


def test_a_gap_in_which_no_worker_was_there_does_not_count(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    before = drained(queue, new_worker("w"), new_job, elapse, *range(1, 20))
    elapse(86_400.0)
    after = drained(queue, new_worker("heir"), new_job, elapse, *range(1, 4))
    assert before == pytest.approx(new_job().cost, rel=0.15)
    assert after == pytest.approx(before, rel=0.15)


def test_a_rate_is_forgotten_when_nobody_has_waited_for_long(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    worker = new_worker("w")
    for _ in range(2):
        admit(queue, new_job())
    claim(worker, 1, max_jobs=1)
    elapse(40_000.0)  # it served no one all night long, and looks slow
    claim(worker, 2)
    assert queue.snapshot().drain_rate < 2
    for number in range(3, 9):
        elapse(5.0)
        claim(worker, number)
    assert 0 < queue.snapshot().drain_rate < 2
    for number in range(9, 18):
        elapse(5.0)
        claim(worker, number)
    assert queue.snapshot().drain_rate == 0.0


def test_waits_of_a_moment_between_two_workers_say_nothing(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    one, other = new_worker("one"), new_worker("other")
    for number in range(1, 40):
        for _ in range(20):
            admit(queue, new_job())
        claim(one, number, max_jobs=12)
        elapse(0.1)
        claim(other, number)
        elapse(0.5)
    assert queue.snapshot().drain_rate == 0.0


def test_a_clock_that_is_set_back_disturbs_little(
    queue: JobQueue, new_worker: NewWorker, new_job: NewJob, elapse: Elapse
) -> None:
    worker = new_worker("w")
    before = drained(queue, worker, new_job, elapse, *range(1, 11))
    elapse(-600.0)
    assert drained(queue, worker, new_job, elapse, *range(11, 21)) == pytest.approx(before, rel=0.2)


def test_counters_can_be_rebuilt_from_the_jobs_alone(
    client: redis.Redis, pool: str, queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    for _ in range(3):
        admit(queue, new_job())
    worker = new_worker("w")
    [held] = claim(worker, max_jobs=1)
    before = queue.snapshot()
    prefix = f"headrace:{{{pool}}}:"
    client.hset(prefix + "counters", mapping={"depth:0": 99, "tokens:0": 5, "running": -3})
    client.hset(prefix + "tenants", "ghost", 7)
    assert queue.rebuild() == {"waiting": 2, "running": 1, "requeued": 0}
    assert queue.snapshot() == before
    client.delete(prefix + "held:w")
    assert queue.rebuild() == {"waiting": 3, "running": 0, "requeued": 1}
    assert queue.describe(held.job.id)["state"] == "queued"


def test_only_admission_is_refused_when_the_broker_is_out_of_memory(
    client: redis.Redis, queue: JobQueue, new_worker: NewWorker, new_job: NewJob
) -> None:
    admit(queue, new_job())
    worker = new_worker("w")
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            admit(queue, new_job())
        [claimed] = claim(worker)
        worker.publish_step(
            [Row(claimed.job.id, 1, 1, Delta(0, (1,), "a")), Row(claimed.job.id, 1, 2, Terminal("succeeded"))]
        )
    finally:
        client.config_set("maxmemory", 0)
    assert len(queue.replay(claimed.job.id, 0)) == 2
