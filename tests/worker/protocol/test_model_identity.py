"""Finding the model and its name."""

import json
from pathlib import Path

import pytest

from worker.protocol.model_identity import (
    MANIFEST,
    ModelNotPrepared,
    cache_folder,
    default_model_folder,
    is_whole,
    resolve_model,
    served_name,
)


@pytest.fixture
def default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared default model of one small file, in a cache of its own."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    folder = default_model_folder()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / MANIFEST).write_text(json.dumps({"config.json": {"bytes": 2, "sha256": ""}}))
    return folder


def test_given_no_model_setting_then_it_is_the_default_model_under_its_name(default_folder: Path) -> None:
    assert resolve_model("") == (str(default_folder), "smollm2-135m")
    assert resolve_model("", "mine") == (str(default_folder), "mine")


def test_given_a_missing_or_cut_file_then_the_error_says_what_to_run(default_folder: Path) -> None:
    (default_folder / "config.json").write_text("{")

    assert not is_whole(default_folder)
    with pytest.raises(ModelNotPrepared, match="run `headrace prepare`"):
        resolve_model("")


def test_given_a_folder_then_its_last_part_in_lower_case_is_the_name(tmp_path: Path) -> None:
    (tmp_path / "My-Model.v2").mkdir()

    assert resolve_model(f"{tmp_path}/My-Model.v2/") == (f"{tmp_path}/My-Model.v2", "my-model.v2")


def test_given_a_hub_id_then_it_is_left_to_the_hub() -> None:
    assert resolve_model("HuggingFaceTB/SmolLM2-360M") == ("HuggingFaceTB/SmolLM2-360M", "smollm2-360m")


@pytest.mark.parametrize("model", ["/no/such/folder", "./no-such-folder", "~/no-such-folder"])
def test_given_a_path_that_is_no_folder_then_the_error_names_it(model: str) -> None:
    with pytest.raises(ModelNotPrepared, match=f"HEADRACE_MODEL='{model}': there is no such folder"):
        resolve_model(model)


@pytest.mark.parametrize("name", ["a b", "a/b", "-a", "a" * 97, "{a}"])
def test_given_a_name_unfit_for_paths_and_keys_then_it_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_MODEL_NAME="):
        served_name("model", name)


def test_the_cache_is_the_setting_or_lies_in_the_users_cache_folder() -> None:
    assert cache_folder({"HEADRACE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/headrace")
    assert cache_folder({}) == Path("~/.cache/headrace").expanduser()
