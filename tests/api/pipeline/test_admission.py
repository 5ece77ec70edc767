"""Given that no worker serves a model, the first request after one does is not refused by what was seen before."""

import os

from api.pipeline.admission import AdmissionControl
from api.settings import ApiSettings
from tests.api.pipeline.refusals import facts_of
from tests.worker.protocol.conftest import INFO
from worker.protocol.connection import connect
from worker.protocol.job import JobClass
from worker.protocol.queue import JobQueue
from worker.protocol.worker_lease import WorkerLease


def test_a_worker_is_seen_as_soon_as_it_is_there(broker_url: str) -> None:
    client, pool = connect(broker_url), f"admission-{os.getpid()}"
    admission = AdmissionControl(JobQueue(client, pool), ApiSettings())
    assert facts_of(lambda: admission.check_cheaply(JobClass.INTERACTIVE)) == (503, None, "unavailable")
    WorkerLease(client, pool, "w", 60_000).renew([], 0, INFO)
    admission.check_cheaply(JobClass.INTERACTIVE)
