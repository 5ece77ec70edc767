"""Fields that clients know from OpenAI or from other servers and that are not served yet.

A field that would change the answer must not be dropped in silence: it is refused by its name, unless its value asks
for nothing. Fields in neither this table nor the checked requests are ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api.errors import unsupported_parameter


@dataclass(frozen=True)
class Unserved:
    accepted: str  # the neutral values in words, for the error message
    is_neutral: Callable[[Any], bool]


def _number(neutral: float) -> Unserved:
    return Unserved(f"{neutral:g}", lambda value: type(value) in (int, float) and value == neutral)


def _flag(neutral: bool) -> Unserved:
    return Unserved(str(neutral).lower(), lambda value: value is neutral)


def _one_of(*neutral: Any) -> Unserved:
    return Unserved(" or ".join(repr(value) for value in neutral), lambda value: value in neutral)


ABSENT = Unserved("null", lambda _: False)
EMPTY_LIST = Unserved("an empty list", lambda value: value == [])
EMPTY_OBJECT = Unserved("an empty object", lambda value: value == {})

SHARED = {
    "length_penalty": _number(1),
    "prompt_logprobs": ABSENT,
    "bad_words": EMPTY_LIST,
    "allowed_token_ids": EMPTY_LIST,
    "use_beam_search": _flag(False),
    "skip_special_tokens": _flag(True),
    "spaces_between_special_tokens": _flag(True),
    "truncate_prompt_tokens": ABSENT,
    "guided_decoding_backend": ABSENT,
    "guided_whitespace_pattern": ABSENT,
    "grammar": ABSENT,
    "json_schema": ABSENT,
    "typical_p": _number(1),
    "priority": _number(0),
}

CHAT = SHARED | {
    "best_of": _number(1),
    "echo": _flag(False),
    "suffix": _one_of(""),
    "prediction": ABSENT,
    "modalities": _one_of(["text"]),
    "audio": ABSENT,
    "verbosity": _one_of("medium"),
    "web_search_options": ABSENT,
    "chat_template": ABSENT,
    "documents": EMPTY_LIST,
}

COMPLETIONS = SHARED | {
    "prompt_embeds": ABSENT,
    "add_special_tokens": _flag(True),
}


def refuse_unserved(request: dict[str, Any], table: dict[str, Unserved]) -> None:
    """Raises ApiError 400 unsupported_parameter for the first field of the table that asks for something."""
    for name, field in table.items():
        value = request.get(name)
        if value is not None and not field.is_neutral(value):
            raise unsupported_parameter(name, field.accepted)
