"""All settings as a table: what `headrace settings` prints and the README shows."""

import dataclasses
from typing import Any

from api.batch.settings import BatchSettings
from api.settings import ApiSettings
from ops.settings import ClientSettings, OpsSettings
from worker.protocol.model_identity import CacheSettings
from worker.settings import WorkerSettings

READERS: dict[str, tuple[type[Any], ...]] = {
    "API": (ApiSettings, CacheSettings),
    "batch worker": (BatchSettings,),
    "worker": (WorkerSettings, CacheSettings),
    "`headrace up`": (OpsSettings, CacheSettings),
    "`headrace batch`": (ClientSettings,),
}


def all_settings() -> list[type[Any]]:
    return [cls for classes in READERS.values() for cls in classes]


def settings_table() -> str:
    """A Markdown table with a row for each variable; who reads it is named in the last column."""
    fields: dict[str, dataclasses.Field[Any]] = {}
    readers: dict[str, list[str]] = {}
    for reader, classes in READERS.items():
        for field in (field for cls in classes for field in dataclasses.fields(cls)):
            variable = field.metadata["variable"]
            fields.setdefault(variable, field)
            readers.setdefault(variable, []).append(reader)
    rows = [
        f"| `{variable}` | {_shown(field.default)} | {field.metadata['help']} | {', '.join(readers[variable])} |"
        for variable, field in sorted(fields.items())
    ]
    return "\n".join(["| variable | default | meaning | read by |", "|---|---|---|---|", *rows])


def _shown(default: object) -> str:
    if default == "":
        return "empty"
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"
