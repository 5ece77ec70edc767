"""The Celery app of the batch process. Its tasks are hints and nothing more: what is to be done stands in Redis.

kombu can lose a message, and deliver one twice; beat's ticks drive whatever is not finished, so neither matters.
"""

from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection
from kombu.transport import virtual
from kombu.transport.redis import Channel

from api.batch.settings import BatchSettings
from api.settings import ApiSettings
from worker.protocol.configuration import read_settings

TICK, SWEEP, DRIVE, TIDY, WEBHOOK = (f"headrace.{name}" for name in ("tick", "sweep", "drive", "tidy", "webhook"))
TICK_S = 1.0
SWEEP_S = 60.0
MAX_TASK_S = 30  # what a task may take; Redis gives a message that was not acknowledged to another after twice that
_RETRY_S = 1.0
_PREFIX = "headrace:celery:"


class SoonBackConnection(Connection):  # type: ignore[misc]
    """After a long outage kombu's own pauses between two tries last half a minute."""

    def ensure_connection(self, *args: Any, **options: Any) -> Connection:
        pauses = {"interval_start": _RETRY_S, "interval_step": 0, "interval_max": _RETRY_S}
        return super().ensure_connection(*args, **(pauses | options))


class SoonBackAmqp(AMQP):  # type: ignore[misc]
    Connection = SoonBackConnection


def acknowledge_only_while_connected() -> None:
    """A task that ends after its connection has gone acknowledges in vain; kombu would take the worker down for it."""
    acknowledge = virtual.Channel.basic_ack

    def basic_ack(channel: Channel, delivery_tag: str, multiple: bool = False) -> None:
        if channel.connection is not None:
            acknowledge(channel, delivery_tag, multiple)

    Channel.basic_ack = basic_ack


def new_celery_app(broker_url: str) -> Celery:
    """For every model's batch processes; `queue_name` keeps their tasks apart."""
    celery = Celery("headrace", broker=broker_url, amqp=SoonBackAmqp)
    celery.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        task_publish_retry=False,  # the next tick says it again
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=True,  # for Flower
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "global_keyprefix": _PREFIX,
            "visibility_timeout": 2 * MAX_TASK_S,
            "socket_timeout": 5.0,
            "socket_connect_timeout": 1.0,
            "socket_keepalive": True,
            "health_check_interval": 5,
        },
        beat_scheduler="celery.beat:Scheduler",  # keeps nothing: ticks have no memory
        beat_schedule={
            "tick": {"task": TICK, "schedule": TICK_S, "options": {"expires": 5 * TICK_S}},
            "sweep": {"task": SWEEP, "schedule": SWEEP_S, "options": {"expires": SWEEP_S}},
        },
    )
    return celery


def queue_name(pool: str) -> str:
    return f"batch-{pool}"


def broker_url(settings: BatchSettings, api: ApiSettings) -> str:
    return settings.celery_broker_url or api.redis_url


def __getattr__(name: str) -> Celery:
    """`app`, which `celery -A api.batch.celery_app` and Flower look for: made then, as settings may be bad."""
    if name != "app":
        raise AttributeError(name)
    return new_celery_app(broker_url(read_settings(BatchSettings), read_settings(ApiSettings)))
