"""How fast a full queue says no: requests that race for few places, and what probes see meanwhile."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ops.bench.local_stack import LOOPBACK, LocalStack
from ops.bench.quantiles import quantile
from worker.protocol.connection import connect
from worker.protocol.worker_lease import WorkerLease

NUM_RACING = 200
BOUND = 50
_RENEW_EVERY_S = 0.5
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class AdmissionResult:
    """Latencies in milliseconds: of the refused requests, and of /livez during the race."""

    num_admitted: int
    num_refused: int
    refusal_p50_ms: float
    refusal_p99_ms: float
    probe_max_ms: float


def measure_admission(stack: LocalStack, model: str) -> AdmissionResult:
    """200 requests at once against a bound of 50. A lease without a worker holds them until the race is over."""
    port = stack.start_web(HEADRACE_QUEUE_DEPTH=str(BOUND), HEADRACE_MAX_WAIT_S="600")
    lease = WorkerLease(connect(stack.redis_url), model, "holds-the-queue", 5000)
    race_is_over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(lease, race_is_over))
    renewing.start()
    time.sleep(2 * _RENEW_EVERY_S)
    start = threading.Barrier(NUM_RACING + 1)
    refusals: list[float] = []
    probes: list[float] = []

    def request(i: int) -> None:
        start.wait()
        began_s = time.perf_counter()
        if _refused(port, model, f"question {i}"):
            refusals.append((time.perf_counter() - began_s) * 1000)

    with ThreadPoolExecutor(NUM_RACING) as pool:
        futures = [pool.submit(request, i) for i in range(NUM_RACING)]
        start.wait()
        while len(refusals) < NUM_RACING - BOUND and not all(future.done() for future in futures):
            probes.append(_probe_ms(port))
        # The admitted ones end by their own timeout: nobody is there to answer them.
    race_is_over.set()
    renewing.join()
    lease.requeue([], is_leaving=True)
    return AdmissionResult(
        NUM_RACING - len(refusals), len(refusals), quantile(refusals, 0.5), quantile(refusals, 0.99), max(probes)
    )


def _renew(lease: WorkerLease, is_over: threading.Event) -> None:
    while not is_over.is_set():
        lease.renew([], 0, {
            "pool_tokens": 10**9, "page_size": 32, "max_context": 10**6, "fingerprint": "none",
            "step_age_s": 0.0, "is_draining": 0,
        })  # fmt: skip
        is_over.wait(_RENEW_EVERY_S)


def _refused(port: int, model: str, question: str) -> bool:
    """Whether the queue refused the request. An admitted one returns when its time is over."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 1, "timeout": 10}
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().status == 429
    finally:
        connection.close()


def _probe_ms(port: int) -> float:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_S)
    began_s = time.perf_counter()
    try:
        connection.request("GET", "/livez")
        connection.getresponse().read()
        return (time.perf_counter() - began_s) * 1000
    finally:
        connection.close()
