"""Which model is served: where its files lie, and the name that clients send and that keys and job ids carry.

Standard library only, so that the API can look a model up without loading torch.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.protocol.configuration import read_settings, setting

SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
DEFAULT_MODEL = "smollm2-135m"
MANIFEST = "headrace-manifest.json"  # {file name: {"bytes": size, "sha256": hex digest}}, written last of all files


@dataclass(frozen=True)
class CacheSettings:
    cache: str = setting("CACHE", "", "folder of prepared models; empty means headrace in the user's cache folder")


class ModelNotPrepared(RuntimeError):
    """The model's files are missing or incomplete; the message says what to do."""


def served_name(model: str, chosen: str) -> str:
    """The chosen name, or one made of the last part of the model's folder or hub id.

    Raises ValueError when the name cannot stand in a URL path and a Redis key.
    """
    name = chosen or model.rstrip("/").rpartition("/")[2].lower()
    if not SERVED_NAME.fullmatch(name):
        raise ValueError(f"HEADRACE_MODEL_NAME={name!r}: use letters, digits, dot, dash and underscore")
    return name


def resolve_model(model: str, chosen_name: str = "") -> tuple[str, str]:
    """(folder or hub id, served name) of the model that the settings MODEL and MODEL_NAME ask for.

    An empty `model` is the default model in its cached folder. Raises ModelNotPrepared when a folder is not there or
    not whole, ValueError when the name cannot be served.
    """
    if model == "":
        folder = default_model_folder()
        if not is_whole(folder):
            raise ModelNotPrepared(f"the default model is not prepared in {folder}: run `headrace prepare`")
        return str(folder), served_name(DEFAULT_MODEL, chosen_name)
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path), served_name(str(path.resolve()), chosen_name)
    if model.startswith(("/", ".", "~")):
        raise ModelNotPrepared(f"HEADRACE_MODEL={model!r}: there is no such folder")
    return model, served_name(model, chosen_name)


def default_model_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where the default model is kept, prepared or not."""
    return cache_folder(environ) / "models" / DEFAULT_MODEL


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The setting HEADRACE_CACHE, else headrace in the user's cache folder."""
    environ = os.environ if environ is None else environ
    if chosen := read_settings(CacheSettings, environ).cache:
        return Path(chosen).expanduser().absolute()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headrace"


def is_whole(folder: Path) -> bool:
    """Whether every file named in the folder's manifest is there with its full size. Reads no file's content."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == entry["bytes"] for name, entry in manifest.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False
