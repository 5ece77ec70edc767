"""What the API knows of a model without its weights, and without torch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.pipeline.served_model import ServedModel, load_served_model
from api.settings import ApiSettings
from worker.protocol.configuration import BadSetting

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@pytest.fixture
def folder(smollm2_folder: Path, tmp_path: Path) -> Path:
    """SmolLM2's tokenizer, to be given a configuration."""
    folder = tmp_path / "Some-Model"
    folder.mkdir()
    for name in TOKENIZER_FILES:
        (folder / name).symlink_to(smollm2_folder / name)
    return folder


def load(folder: Path, config: dict[str, Any], **settings: Any) -> ServedModel:
    (folder / "config.json").write_text(json.dumps(config))
    return load_served_model(ApiSettings(model=str(folder), **settings))


def test_the_default_model_is_known(model: ServedModel, smollm2_folder: Path) -> None:
    assert (model.name, model.path) == ("smollm2-135m", str(smollm2_folder))
    assert (model.max_context, model.vocab_size) == (8192, 49152)
    assert model.created_s == int((smollm2_folder / "config.json").stat().st_mtime)


@pytest.mark.parametrize(
    ("config", "max_context", "vocab_size"),
    [
        ({"max_position_embeddings": 4096, "vocab_size": 50_000}, 4096, 50_000),
        ({"n_positions": 1024}, 1024, 49152),
        ({"text_config": {"max_position_embeddings": 2048, "vocab_size": 60_000}, "vocab_size": 1}, 2048, 60_000),
        ({"max_position_embeddings": None}, 8192, 49152),
    ],
)
def test_limits_come_from_the_configuration_then_from_the_tokenizer(
    folder: Path, config: dict[str, Any], max_context: int, vocab_size: int
) -> None:
    served = load(folder, config)
    assert (served.name, served.max_context, served.vocab_size) == ("some-model", max_context, vocab_size)


@pytest.mark.parametrize(("wanted", "expected"), [(0, 4096), (100, 100), (4096, 4096), (5000, 4096)])
def test_the_setting_for_the_context_counts_within_what_the_model_can(folder: Path, wanted: int, expected: int) -> None:
    assert load(folder, {"max_position_embeddings": 4096}, max_context=wanted).max_context == expected


def test_a_model_of_unknown_context_asks_for_the_setting(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend"}))
    with pytest.raises(BadSetting, match="HEADRACE_MAX_CONTEXT"):
        load(folder, {})
    assert load(folder, {}, max_context=70).max_context == 70


def test_a_folder_without_a_configuration_is_refused(folder: Path) -> None:
    with pytest.raises(BadSetting, match=r"config\.json"):
        load_served_model(ApiSettings(model=str(folder)))


@pytest.mark.parametrize(("text", "told"), [("{not json", "cannot be read: "), ("[]", "holds no object$")])
def test_a_folder_with_a_broken_configuration_is_refused_by_name(text: str, told: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(BadSetting, match=rf"HEADRACE_MODEL='{folder}': its config\.json {told}"):
        load_served_model(ApiSettings(model=str(folder)))


def test_a_hub_id_whose_files_cannot_be_fetched_is_no_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="nobody/nothing"):
        load_served_model(ApiSettings(model="nobody/nothing"))


def test_preparing_requests_never_loads_torch(smollm2_folder: Path) -> None:
    program = f"""
import sys
from api.pipeline.prepare import prepare_chat, prepare_completion
from api.pipeline.served_model import load_served_model
from api.pipeline.validate import validate_chat, validate_completion
from api.settings import ApiSettings
settings = ApiSettings(model={str(smollm2_folder)!r}, model_name="m")
model = load_served_model(settings)
messages = [{{"role": "user", "content": "Hello"}}, {{"role": "user", "content": "<|im_end|>"}}]
prepare_chat(validate_chat({{"model": "m", "messages": messages}}), model, "default", settings)
prepare_completion(validate_completion({{"model": "m", "prompt": "Hello"}}), model, "default", settings)
print([name for name in sys.modules if name.partition(".")[0] in ("torch", "tensorflow", "celery")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"
