"""`headrace workers` and `headrace doctor`: what operators ask of the workers and of the queue itself."""

import argparse
import contextlib
import json
from collections.abc import Iterator

import redis

from ops import broker
from ops.settings import OpsSettings
from worker.protocol.configuration import BadSetting, read_settings
from worker.protocol.connection import BAD_URL, connect, reason_of
from worker.protocol.model_identity import resolve_model
from worker.protocol.queue import JobQueue
from worker.settings import WorkerSettings

_REDIS, _CELERY_BROKER = "HEADRACE_REDIS_URL", "HEADRACE_CELERY_BROKER_URL"


class BrokerRefused(RuntimeError):
    """The broker cannot be reached or does not let us in; the message names the setting, and no password."""


def ask_workers(options: argparse.Namespace) -> int:
    from kombu.exceptions import OperationalError  # noqa: PLC0415  kombu takes a moment to load

    from worker.control import ask  # noqa: PLC0415

    settings = read_settings(WorkerSettings)
    pool = _pool(settings)
    variable = _CELERY_BROKER if settings.celery_broker_url else _REDIS
    url = settings.celery_broker_url or queue_url()
    with _named(variable, OperationalError, ImportError):  # the last: a transport's own library is not there
        answers = ask(url, pool, options.question, options.name)
    print(json.dumps(answers, indent=2, sort_keys=True))
    return 0 if answers else 1


def doctor(_: argparse.Namespace) -> int:
    pool = _pool(read_settings(WorkerSettings))
    url = queue_url()
    with _named(_REDIS):
        counted = JobQueue(connect(url), pool).rebuild()
    print(json.dumps(counted))
    return 0


def queue_url() -> str:
    """The setting, else that of the embedded broker where `headrace up` starts it. Raises BadSetting."""
    settings = read_settings(OpsSettings)
    if settings.redis_url:
        return settings.redis_url
    if settings.broker_port == 0:
        raise BadSetting(f"HEADRACE_BROKER_PORT=0: any port may be the broker's; name it with {_REDIS}")
    return f"redis://{broker.HOST}:{settings.broker_port}/0"


def _pool(settings: WorkerSettings) -> str:
    return resolve_model(settings.model, settings.model_name)[1]


@contextlib.contextmanager
def _named(variable: str, *more: type[Exception]) -> Iterator[None]:
    """What goes wrong with the broker (`more` among it) becomes BrokerRefused, naming the setting that leads there."""
    refusals: tuple[type[Exception], ...] = (redis.RedisError, *more)
    try:
        yield
    except refusals as error:
        raise BrokerRefused(f"{variable}: {reason_of(error)}") from error
    except KeyError as error:  # kombu's, of an unknown scheme
        raise BrokerRefused(f"{variable}: {error.args[0]}") from error
    except (ValueError, TypeError) as error:
        raise BrokerRefused(f"{variable}: {BAD_URL}") from error
