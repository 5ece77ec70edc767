"""The x-ratelimit headers: requests are places in the queue, tokens are what a tenant may have waiting and running."""

from api.settings import ApiSettings
from worker.protocol.queue import Admission

_LONGEST_S = 86_400.0  # after a long stall hardly anything seems to drain
_UNKNOWN_S = 1.0  # until something is free, while nobody has measured how fast the queue drains


def limit_headers(settings: ApiSettings, admission: Admission) -> dict[str, str]:
    """As OpenAI names them: what there is in all, what of it is left, and when all of it will be again."""
    headers = _requests(settings, admission.num_waiting, admission.tokens_ahead, admission.drain_rate)
    return headers | {
        "x-ratelimit-limit-tokens": str(settings.tenant_tokens),
        "x-ratelimit-remaining-tokens": str(max(0, settings.tenant_tokens - admission.tenant_tokens)),
        "x-ratelimit-reset-tokens": duration(_drained_in_s(admission.tenant_tokens, admission.drain_rate)),
    }


def full_queue_headers(settings: ApiSettings, num_tokens: int, drain_rate: float) -> dict[str, str]:
    return _requests(settings, settings.queue_depth, num_tokens, drain_rate)


def _requests(settings: ApiSettings, num_waiting: int, num_tokens: int, drain_rate: float) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": str(settings.queue_depth),
        "x-ratelimit-remaining-requests": str(max(0, settings.queue_depth - num_waiting)),
        "x-ratelimit-reset-requests": duration(_drained_in_s(num_tokens, drain_rate)),
    }


def _drained_in_s(num_tokens: int, drain_rate: float) -> float:
    if num_tokens <= 0:
        return 0.0
    return min(num_tokens / drain_rate, _LONGEST_S) if drain_rate > 0 else _UNKNOWN_S


def duration(seconds: float) -> str:
    """Such as 0s, 17ms, 1.25s and 6m0s."""
    millis = round(seconds * 1000)
    if 0 < millis < 1000:
        return f"{millis}ms"
    minutes, rest = divmod(millis / 1000, 60)
    hours, minutes = divmod(int(minutes), 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest:.3g}s"
