"""Settings: a frozen dataclass read once from the environment and an optional headrace.toml.

Each field names its environment variable in its metadata (see `setting`). In the file the same variable is the key in
lower case without the prefix: HEADRACE_QUEUE_DEPTH is ``queue_depth``. The environment wins. A bad value is refused
with its key.
"""

import dataclasses
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

PREFIX = "HEADRACE_"
SettingsT = TypeVar("SettingsT")


class BadSetting(ValueError):
    """A setting's value cannot be used; the message names the key and the value."""


def setting(variable: str, default: Any, help: str, *, at_least: float = -math.inf, at_most: float = math.inf) -> Any:
    """A settings field, set by the environment variable HEADRACE_<variable>; its bounds are for numbers."""
    metadata = {"variable": PREFIX + variable, "help": help, "bounds": (at_least, at_most)}
    return dataclasses.field(default=default, metadata=metadata)


def read_settings(cls: type[SettingsT], environ: Mapping[str, str] | None = None) -> SettingsT:
    """An instance of the settings dataclass `cls`. Raises BadSetting."""
    environ = os.environ if environ is None else environ
    in_file = _read_file(environ.get(PREFIX + "CONFIG"))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        variable = field.metadata["variable"]
        raw = environ.get(variable, in_file.get(_key_of(variable)))
        if raw is not None and raw != "":
            values[field.name] = _convert(variable, raw, type(field.default), field.metadata["bounds"])
    return cls(**values)


def refuse_unknown_keys(classes: Iterable[type[Any]], environ: Mapping[str, str]) -> None:
    """Raises BadSetting where the file holds a key that is no setting of any of these classes."""
    known = {_key_of(field.metadata["variable"]) for cls in classes for field in dataclasses.fields(cls)}
    for key in _read_file(environ.get(PREFIX + "CONFIG")):
        if key not in known:
            raise BadSetting(f"{key}: the file of settings holds it, but there is no such setting")


def _key_of(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


def _read_file(path: str | None) -> dict[str, Any]:
    chosen = Path(path or "headrace.toml")
    if path is None and not chosen.exists():
        return {}
    try:
        return tomllib.loads(chosen.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"HEADRACE_CONFIG={chosen}: {error}") from error


def _convert(variable: str, raw: Any, kind: type, bounds: tuple[float, float]) -> Any:
    if type(raw) not in (str, kind) and not (kind is float and type(raw) is int):  # a file's values have types
        raise BadSetting(f"{variable}={raw!r}: expected {_names[kind]}")
    try:
        if kind is bool:
            value: Any = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
                str(raw).lower()
            ]
        else:
            value = kind(raw)
    except (KeyError, ValueError) as error:
        raise BadSetting(f"{variable}={raw!r}: expected {_names[kind]}") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise BadSetting(f"{variable}={raw!r}: must be finite")
    if kind in (int, float) and not bounds[0] <= value <= bounds[1]:
        wanted = f"at least {bounds[0]}" if value < bounds[0] else f"at most {bounds[1]}"
        raise BadSetting(f"{variable}={raw!r}: must be {wanted}")
    return value


_names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def data_folder(chosen: str, xdg_data_home: str | None) -> Path:
    """Where Headrace keeps its files: the setting, else headrace in the user's data folder."""
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(xdg_data_home or "~/.local/share").expanduser() / "headrace"
