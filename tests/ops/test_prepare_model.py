"""Preparing the default model: the real result, and what damage and company do, with a stand-in for the slow part."""

import json
import threading
from pathlib import Path

import pytest

from ops import prepare_model
from ops.convert_gguf import check_tokenizer
from ops.prepare_model import has_right_content, prepare_default_model
from worker.protocol.model_identity import MANIFEST, ModelNotPrepared, default_model_folder, is_whole

WEIGHTS = "weights of a stand-in"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The folders in which the stand-in for download and conversion worked, one for each time."""
    folders: list[Path] = []

    def convert(_: Path, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o700)
        (folder / "model.safetensors").write_text(WEIGHTS)
        (folder / "model.safetensors").chmod(0o600)
        (folder / "config.json").write_text("{}")
        folders.append(folder)

    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare_model, "_download", lambda folder: folder)
    monkeypatch.setattr(prepare_model, "convert_gguf", convert)
    return folders


def test_the_real_model_is_whole_and_its_tokenizer_the_originals(smollm2_folder: Path) -> None:
    check_tokenizer(smollm2_folder)

    assert has_right_content(smollm2_folder)
    assert json.loads((smollm2_folder / "generation_config.json").read_text())["eos_token_id"] == 2
    assert json.loads((smollm2_folder / "tokenizer_config.json").read_text())["model_max_length"] == 8192
    assert json.loads((smollm2_folder / "config.json").read_text())["dtype"] == "bfloat16"


def test_given_an_empty_cache_then_the_model_is_made_whole_and_readable_by_others(made: list[Path]) -> None:
    folder = prepare_default_model()

    assert folder == default_model_folder()
    assert is_whole(folder)
    assert (folder / "model.safetensors").read_text() == WEIGHTS
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755
    assert len(made) == 1


def test_given_a_prepared_model_then_nothing_is_done_again(made: list[Path]) -> None:
    prepare_default_model()
    prepare_default_model()

    assert len(made) == 1


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", None),
        ("model.safetensors", WEIGHTS[:-1]),
        ("model.safetensors", WEIGHTS.upper()),
        (MANIFEST, None),
        (MANIFEST, "{"),
        (MANIFEST, "[1]"),
        (MANIFEST, '{"config.json": 1}'),
    ],
)
def test_given_a_damaged_cache_then_it_is_made_anew(made: list[Path], file: str, content: str | None) -> None:
    damaged = prepare_default_model() / file
    if content is None:
        damaged.unlink()
    else:
        damaged.write_text(content)

    folder = prepare_default_model()

    assert len(made) == 2
    assert is_whole(folder)
    assert has_right_content(folder)


def test_given_two_at_once_then_one_works_and_both_get_the_model(made: list[Path]) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(prepare_default_model())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert folders == [default_model_folder()] * 2
    assert len(made) == 1


def test_given_a_failure_half_way_then_no_model_appears_and_nothing_is_left(
    made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path, folder: Path) -> None:
        folder.mkdir()
        made.append(folder)
        raise ModelNotPrepared("the tokenizer is not right")

    monkeypatch.setattr(prepare_model, "convert_gguf", fail)

    with pytest.raises(ModelNotPrepared, match="the tokenizer is not right"):
        prepare_default_model()
    assert [path.name for path in default_model_folder().parent.iterdir()] == [".lock"]


def test_given_what_a_killed_run_left_then_it_is_cleared_away(made: list[Path]) -> None:
    left = default_model_folder().with_name("smollm2-135m.partial-gone")
    left.mkdir(parents=True)
    prepare_default_model()

    assert not left.exists()
    assert len(made) == 1


def test_given_a_cache_that_cannot_be_written_then_the_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "file"))

    with pytest.raises(ModelNotPrepared, match="HEADRACE_CACHE names another place"):
        prepare_default_model()


def test_given_a_tokenizer_without_the_digit_splitter_then_it_is_refused(smollm2_folder: Path, tmp_path: Path) -> None:
    for file in smollm2_folder.glob("*token*"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "chat_template.jinja").write_text((smollm2_folder / "chat_template.jinja").read_text())
    (tmp_path / "config.json").write_text((smollm2_folder / "config.json").read_text())
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = tokenizer["pre_tokenizer"]["pretokenizers"][1]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))

    with pytest.raises(ModelNotPrepared, match="the tokenizer makes"):
        check_tokenizer(tmp_path)
