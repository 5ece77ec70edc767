"""``python -m worker``: one engine process. Exits non-zero when it cannot do its job."""

import logging
import os
import secrets
import signal
import socket
import sys

# Before torch is loaded. OpenMP's threads otherwise spin while they wait, and where the API shares the cores a step
# then takes several times as long; quiet, waiting passively costs little.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from worker.claimer import Claimer
from worker.control import Control
from worker.engine.startup import load_engine
from worker.held_jobs import HeldJobs
from worker.lease_keeper import LeaseKeeper, Limits
from worker.loop import Ports, WorkerLoop
from worker.metrics import WorkerMetrics, port_of
from worker.models.refusal import ModelRefused
from worker.protocol.configuration import BadSetting, read_settings
from worker.protocol.connection import check_access, connect
from worker.protocol.model_identity import ModelNotPrepared, resolve_model
from worker.protocol.queue import JobQueue
from worker.protocol.structured_log import configure_logging
from worker.protocol.worker_lease import WorkerLease
from worker.publisher import Publisher
from worker.settings import WorkerSettings

log = logging.getLogger("headrace.worker")

_FLUSH_S = 5.0


def main() -> int:
    try:
        settings = read_settings(WorkerSettings)
        configure_logging(settings.log_level)
        model_path, pool = resolve_model(settings.model, settings.model_name)
    except (BadSetting, ModelNotPrepared, ValueError) as error:
        print(f"headrace worker: {error}", file=sys.stderr)
        return os.EX_CONFIG  # which tells a supervisor that it need not try again
    try:
        serve(settings, model_path, pool)
    except (BadSetting, ModelRefused, OSError) as error:
        log.error("the worker cannot serve", extra={"reason": str(error)})
        return 1 if isinstance(error, OSError) else os.EX_CONFIG  # files that could not be read or fetched may be later
    return 0


def serve(settings: WorkerSettings, model_path: str, pool: str) -> None:
    """Load the model, serve the pool until SIGTERM or SIGINT, leave in order."""
    check_access(settings.redis_url)
    engine = load_engine(settings, model_path)
    # A new name at every start: what an earlier process of this host held is reaped, never taken for ours.
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    lease_ms = int(settings.lease_s * 1000)
    held, metrics = HeldJobs(), WorkerMetrics()

    def new_lease() -> WorkerLease:
        return WorkerLease(connect(settings.redis_url), pool, name, lease_ms)

    claimer = Claimer(new_lease(), held, engine.page_size, engine.fingerprint)
    publisher = Publisher(new_lease(), held)
    loop = WorkerLoop(engine, Ports(new_lease(), claimer, held, publisher, metrics))
    keeper = LeaseKeeper(
        new_lease(),
        JobQueue(connect(settings.redis_url), pool),
        held,
        lambda: loop.describe(settings.step_limit_s),
        Limits(lease_ms, settings.max_attempts),
    )
    control = Control(settings.celery_broker_url or settings.redis_url, pool, name, loop.control_handlers())
    _stop_on_signals(loop)
    server = metrics.serve(settings.metrics_port)
    log.info("worker ready", extra={"worker": name, "pool": pool, "metrics_port": server and port_of(server[0])})

    keeper.start()
    publisher.start()
    claimer.start()
    control.start()
    loop.run(settings.grace_s)
    # Leaving, in this order: claim no more, let Redis have all that was computed while the lease is alive, stop
    # renewing, and only then hand the rest back (a renewal after that would sign the worker on again).
    claimer.stop()
    publisher.flush(_FLUSH_S)
    publisher.stop()
    keeper.stop()
    loop.leave()
    control.stop()


def _stop_on_signals(loop: WorkerLoop) -> None:
    def stop(_signal: int, _frame: object) -> None:
        loop.flags.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


if __name__ == "__main__":
    sys.exit(main())
