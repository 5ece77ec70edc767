"""What a checked request says about its answer, whichever endpoint it came to."""

from dataclasses import dataclass

from api.errors import bad_request
from api.pipeline.raw import RawRequest

MAX_STOPS = 4
MAX_STOP_CHARS = 4096
MAX_BIAS = 100
MAX_ID_DIGITS = 18
SEED_RANGE = range(-(2**63), 2**64)


@dataclass(frozen=True)
class Generation:
    """None where the request leaves the choice to the server."""

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
    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None  # how many alternatives are told of each token
    service_tier: str | None = None


def check_generation(raw: RawRequest, max_tokens: int | None, logprobs: int | None) -> Generation:
    """Raises ApiError 400 that names the field."""
    if raw.stream_options is not None and not raw.stream:
        raise bad_request("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if raw.seed is not None and raw.seed not in SEED_RANGE:
        raise bad_request("'seed' must be an integer from -2**63 to 2**64 - 1.", "seed")
    if raw.min_tokens and max_tokens is not None and raw.min_tokens > max_tokens:
        raise bad_request(f"'min_tokens' must not be more than the limit of {max_tokens} tokens.", "min_tokens")
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
        n=raw.n or 1,
        presence_penalty=raw.presence_penalty or 0.0,
        frequency_penalty=raw.frequency_penalty or 0.0,
        repetition_penalty=raw.repetition_penalty or 1.0,
        logit_bias=_check_logit_bias(raw.logit_bias or {}),
        stop_token_ids=tuple(dict.fromkeys(raw.stop_token_ids or ())),
        include_stop=bool(raw.include_stop_str_in_output),
        ignore_eos=bool(raw.ignore_eos),
        min_tokens=raw.min_tokens or 0,
        logprobs=logprobs,
        service_tier=raw.service_tier,
    )


def _check_logit_bias(given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    biases: dict[int, float] = {}
    for key, bias in given.items():
        if not (key.isascii() and key.isdigit() and len(key) <= MAX_ID_DIGITS):
            raise bad_request(f"'logit_bias' names {key[:40]!r}, which is no token id.", "logit_bias")
        if not -MAX_BIAS <= bias <= MAX_BIAS:
            raise bad_request(f"'logit_bias' of token {key} must be from -{MAX_BIAS} to {MAX_BIAS}.", "logit_bias")
        if biases.setdefault(int(key), bias) != bias:
            raise bad_request(f"'logit_bias' names token {int(key)} twice.", "logit_bias")
    return tuple(biases.items())


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
