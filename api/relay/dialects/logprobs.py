"""Log-probabilities as chat and as text completions tell them."""

from collections.abc import Sequence
from typing import Any

from api.relay.dialects.token_places import PlacedToken, token_text
from worker.protocol.event import TokenLogprob

UNLIKELY = -9999.0  # JSON has no minus infinity; OpenAI's number for it


def chat_logprobs(tokens: Sequence[PlacedToken]) -> dict[str, Any]:
    return {"content": [_chat_token(token) for token in tokens], "refusal": None}


def _chat_token(token: PlacedToken) -> dict[str, Any]:
    assert token.told is not None, "only a prompt's first token is told nothing of"
    shown = _chat_alternative(token.told.chosen) | {"top_logprobs": [_chat_alternative(top) for top in token.told.top]}
    return shown if token.is_shown else shown | {"bytes": None}  # joined, the bytes are the text


def _chat_alternative(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token_text(token), "logprob": _finite(token.logprob), "bytes": list(token.text)}


def text_logprobs(tokens: Sequence[PlacedToken]) -> dict[str, Any]:
    """Four parallel lists."""
    return {
        "tokens": [_text_token(token) for token in tokens],
        "token_logprobs": [token.told and _finite(token.told.chosen.logprob) for token in tokens],
        "top_logprobs": [_text_alternatives(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _text_token(token: TokenLogprob | PlacedToken) -> str:
    """A part of a character is marked as bytes, since there is no other place that could tell."""
    text = token_text(token)
    return text if text.encode() == token.text else "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.text)


def _text_alternatives(token: PlacedToken) -> dict[str, float] | None:
    """By text: the likeliest ones, and the token itself where it is none of them."""
    if token.told is None:
        return None
    alternatives: dict[str, float] = {}
    for each in (*token.told.top, token.told.chosen):
        alternatives.setdefault(_text_token(each), _finite(each.logprob))
    return alternatives


def _finite(logprob: float) -> float:
    return max(logprob, UNLIKELY)
