"""``python -m api.batch``: the process that drives batches, a Celery worker with beat on a thread of its own."""

import logging
import os
import socket
import sys
import threading
import time
import warnings

# Before the tokenizer is loaded: it shall leave the cores to those who are waited for.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import redis
from celery import Celery, signals
from celery.beat import EmbeddedService
from celery.exceptions import SecurityWarning
from kombu.transport.redis import QoS

from api.batch.celery_app import TICK_S, acknowledge_only_while_connected, broker_url, new_celery_app, queue_name
from api.batch.desk import Desk
from api.batch.settings import BatchSettings, check_webhooks
from api.batch.tasks import Clockwork
from api.pipeline.served_model import load_served_model
from api.pipeline.tokenizer import TokenizerNotUsableError
from api.services import build_services
from api.settings import ApiSettings
from worker.protocol.configuration import BadSetting, read_settings
from worker.protocol.model_identity import ModelNotPrepared
from worker.protocol.structured_log import configure_logging

log = logging.getLogger("headrace.batch")

_NUM_THREADS = 4  # a slow batch, storage or webhook leaves the others their turn
_NICENESS = 10
_MAX_SILENCE_S = 30.0


def main() -> int:
    try:
        api, batch = read_settings(ApiSettings), read_settings(BatchSettings)
        configure_logging(api.log_level)
        check_webhooks(batch)
        desk = Desk(build_services(api, load_served_model(api)), batch)
    except (BadSetting, ModelNotPrepared, TokenizerNotUsableError, ValueError) as error:
        print(f"headrace batch-worker: {error}", file=sys.stderr)
        return os.EX_CONFIG
    except OSError as error:  # files that had to be fetched, perhaps: worth another try
        print(f"headrace batch-worker: {error}", file=sys.stderr)
        return 1
    os.nice(_NICENESS)
    celery = new_celery_app(broker_url(batch, api))
    pool = desk.shared.model.name
    celery.conf.task_default_queue = queue_name(pool)
    clockwork = Clockwork(celery, desk)
    threading.Thread(target=_end_when_stuck, args=(desk, clockwork), name="watchdog", daemon=True).start()
    return serve(celery, pool)


def serve(celery: Celery, pool: str) -> int:
    """Until SIGTERM or SIGINT; tasks that run are waited for."""
    _tame_celery()
    worker = celery.Worker(
        pool="threads",
        concurrency=_NUM_THREADS,
        hostname=f"batch-{pool}-{os.getpid()}@{socket.gethostname()}",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        optimization="fair",
    )
    beat = EmbeddedService(celery, thread=True, scheduler_cls=celery.conf.beat_scheduler)
    beat.start()
    log.info("batch worker ready", extra={"pool": pool})
    worker.start()
    beat.service.stop()
    return int(worker.exitcode or 0)


def _tame_celery() -> None:
    """It shall not set up logging of its own, warn of what is meant to be so, or die with its connection."""
    signals.setup_logging.connect(_leave_logging_alone)
    warnings.simplefilter("ignore", SecurityWarning)
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    # A traceback for each tick that the broker is away; the tasks and the consumer say it in a line.
    logging.getLogger("celery.beat").setLevel(logging.CRITICAL)
    # When the broker goes away in the middle of a task, kombu tries to hand the task's message back to it, fails, and
    # takes the whole worker down. Nobody needs that message: ticks say all of it again.
    QoS.restore_at_shutdown = False
    acknowledge_only_while_connected()


def _leave_logging_alone(**_: object) -> None:
    """Being connected is all it takes."""


def _end_when_stuck(desk: Desk, clockwork: Clockwork) -> None:
    """Celery has been seen to take no work after a broker's return. Whoever supervises this process starts it anew."""
    answered_s = 0.0
    while True:
        time.sleep(TICK_S)
        try:
            desk.store.active()
        except redis.RedisError:
            answered_s = 0.0
            continue
        now_s = time.monotonic()
        answered_s = answered_s or now_s
        if now_s - max(answered_s, clockwork.ticked_s) > _MAX_SILENCE_S:
            log.error("no tick for too long: ending, to be started anew")
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
