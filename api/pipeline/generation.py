"""What a checked request says about its answer, whichever endpoint it came to."""

from dataclasses import dataclass

from api.errors import bad_request
from api.pipeline.raw import RawRequest

MAX_STOPS = 4
MAX_STOP_CHARS = 4096
SEED_RANGE = range(-(2**63), 2**64)


@dataclass(frozen=True)
class Generation:
    """What a checked request says about the answer; None where it leaves the choice to the server."""

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    stop: tuple[str, ...]
    seed: int | None
    timeout_s: float | None
    stream: bool
    include_usage: bool


def check_generation(raw: RawRequest, max_tokens: int | None) -> Generation:
    """Raises ApiError 400 that names the field."""
    if raw.stream_options is not None and not raw.stream:
        raise bad_request("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if raw.seed is not None and raw.seed not in SEED_RANGE:
        raise bad_request("'seed' must be an integer from -2**63 to 2**64 - 1.", "seed")
    return Generation(
        max_tokens=max_tokens,
        temperature=raw.temperature,
        top_p=raw.top_p,
        top_k=raw.top_k,
        min_p=raw.min_p,
        stop=_check_stop(raw.stop),
        seed=raw.seed,
        timeout_s=raw.timeout,
        stream=bool(raw.stream),
        include_usage=raw.stream_options is not None and bool(raw.stream_options.include_usage),
    )


def _check_stop(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    if isinstance(stop, str):
        _check_stop_string(stop, "stop")
        return (stop,)
    if len(stop) > MAX_STOPS:
        raise bad_request(f"'stop' may hold at most {MAX_STOPS} strings, but it holds {len(stop)}.", "stop")
    for i, text in enumerate(stop):
        _check_stop_string(text, f"stop[{i}]")
    return tuple(dict.fromkeys(stop))


def _check_stop_string(text: str, param: str) -> None:
    if not text:
        raise bad_request(f"'{param}' must not be an empty string.", param)
    if len(text) > MAX_STOP_CHARS:
        raise bad_request(f"'{param}' is longer than {MAX_STOP_CHARS} characters.", param)
