"""How one model is named: the served name is what clients send and, as the pool, what keys and job ids carry."""

import re

SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def served_name(model: str, chosen: str) -> str:
    """The chosen name, or one made of the last part of the model's folder or hub id.

    Raises ValueError when the name cannot stand in a URL path and a Redis key.
    """
    name = chosen or model.rstrip("/").rpartition("/")[2].lower()
    if not SERVED_NAME.fullmatch(name):
        raise ValueError(f"HEADRACE_MODEL_NAME={name!r}: use letters, digits, dot, dash and underscore")
    return name
