"""Settings of the batch process, beside those it shares with the API."""

import base64
from dataclasses import dataclass

from worker.protocol.configuration import BadSetting, setting

_SECRET_PREFIX = "whsec_"


@dataclass(frozen=True)
class BatchSettings:
    celery_broker_url: str = setting(
        "CELERY_BROKER_URL", "", "broker of control messages and batch tasks, as a kombu URL; empty means REDIS_URL"
    )
    in_flight: int = setting(
        "BATCH_IN_FLIGHT", 256, "lines that all batches together may have waiting and running", at_least=1
    )
    queue_depth: int = setting("BATCH_QUEUE_DEPTH", 256, "jobs of the batch class that may wait", at_least=1)
    queue_tokens: int = setting(
        "BATCH_QUEUE_TOKENS", 1_000_000, "tokens of the jobs of the batch class that may wait", at_least=1
    )
    record_ttl_s: float = setting(
        "BATCH_TTL_S", 30 * 86400.0, "a batch that has ended can be asked about for so long", at_least=1
    )
    webhook_url: str = setting("WEBHOOK_URL", "", "where to tell that a batch has ended; empty: nowhere")
    webhook_secret: str = setting("WEBHOOK_SECRET", "", "signs webhooks: any text, or whsec_ and base64")


def check_webhooks(settings: BatchSettings) -> None:
    """Raises BadSetting."""
    if settings.webhook_url and not settings.webhook_url.startswith(("http://", "https://")):
        raise BadSetting("HEADRACE_WEBHOOK_URL: expected an http:// or https:// address")
    if settings.webhook_url and not settings.webhook_secret:
        raise BadSetting("HEADRACE_WEBHOOK_SECRET: must be set where HEADRACE_WEBHOOK_URL is")
    try:
        webhook_key(settings.webhook_secret)
    except ValueError as error:
        raise BadSetting("HEADRACE_WEBHOOK_SECRET: what follows whsec_ must be base64") from error


def webhook_key(secret: str) -> bytes:
    """What webhooks are signed with. Raises ValueError."""
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    if not key:
        raise ValueError("no key")
    return key
