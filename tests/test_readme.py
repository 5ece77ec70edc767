"""The README says what is so."""

import re

from ops.cli import ROOT
from ops.settings_table import settings_table
from ops.welcome import curl_line
from worker.protocol.model_identity import DEFAULT_MODEL

README = (ROOT / "README.md").read_text()


def test_every_setting_stands_there_with_its_default_and_meaning() -> None:
    shown = re.search(r"<!-- settings: [^\n]* -->\n(.*)\n<!-- end of settings -->", README, re.DOTALL)

    assert shown is not None
    assert shown[1] == settings_table()


def test_the_line_to_try_is_the_one_that_make_run_prints() -> None:
    assert curl_line("127.0.0.1:8000", DEFAULT_MODEL, needs_key=False) in README


def test_every_file_and_folder_in_backticks_exists() -> None:
    rooms = re.findall(r"`((?:api|worker|ops|tests)/[a-z_/]+)`", README)
    groups = re.findall(r"`((?:api|worker|scripts)/?[a-z/]*)/?\{([a-z_,]+)\}", README)
    paths = rooms + [f"{folder.rstrip('/')}/{name}" for folder, names in groups for name in names.split(",")]

    missing = [path for path in paths if not is_there(path)]
    assert len(paths) > 10
    assert missing == []


def is_there(path: str) -> bool:
    where = ROOT / path.replace("scripts/", "worker/protocol/scripts/")
    return where.is_dir() or any(where.with_suffix(suffix).exists() for suffix in (".py", ".lua"))
