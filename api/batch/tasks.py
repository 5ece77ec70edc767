"""The tasks of the batch process: each one short, each one safe to lose, to repeat or to run beside another."""

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import kombu.exceptions
import redis
from celery import Celery

from api.batch.celery_app import DRIVE, SWEEP, TICK, TIDY, WEBHOOK
from api.batch.desk import Desk
from api.batch.drive import Driver
from api.batch.storage import StorageUnavailable
from api.batch.sweep import Sweep
from api.batch.webhooks import WebhookSender

log = logging.getLogger("headrace.batch")

_HINT_S = 5.0  # a hint this old was overtaken by ticks
_AWAY = (redis.RedisError, StorageUnavailable, kombu.exceptions.OperationalError)


class Clockwork:
    """What ticks do, and when they last did."""

    def __init__(self, celery: Celery, desk: Desk) -> None:
        self.ticked_s = time.monotonic()
        self._desk = desk
        self._driver = Driver(desk)
        self._sweep = Sweep(desk)
        self._webhooks = WebhookSender(desk.store, desk.settings)
        self._celery = celery
        duties: dict[str, Callable[..., None]] = {
            TICK: self.tick,
            SWEEP: self.sweep,
            DRIVE: self.drive,
            TIDY: self.tidy,
            WEBHOOK: self.send_webhook,
        }
        for name, do in duties.items():
            celery.task(name=name)(_patient(do))

    def tick(self) -> None:
        """Drive every batch that has not ended, and do what those that have left to do."""
        self.ticked_s = time.monotonic()
        for batch_id in self._desk.store.active():
            self._hint(DRIVE, batch_id)
        for batch_id in self._desk.store.littered():
            self._hint(TIDY, batch_id)
        for batch_id in self._desk.store.due_webhooks(time.time()):
            self._hint(WEBHOOK, batch_id)

    def drive(self, batch_id: str) -> None:
        if self._driver.drive(batch_id):
            self._hint(DRIVE, batch_id)

    def tidy(self, batch_id: str) -> None:
        self._sweep.tidy(batch_id)

    def send_webhook(self, batch_id: str) -> None:
        self._webhooks.send(batch_id)

    def sweep(self) -> None:
        self._sweep.sweep(time.time())

    def _hint(self, task: str, batch_id: str) -> None:
        self._celery.send_task(task, (batch_id,), expires=_HINT_S)


def _patient(do: Callable[..., None]) -> Callable[..., None]:
    """That something is away is no error of a task: it will be called again."""

    @wraps(do)
    def task(*args: Any) -> None:
        try:
            do(*args)
        except _AWAY as error:
            log.warning("put off", extra={"task": do.__name__, "error": repr(error)})
        except Exception:
            log.exception("a batch task failed", extra={"task": do.__name__, "arguments": args})

    return task
