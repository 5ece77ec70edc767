"""The served model as the API knows it, and transformers' own tokenizer to compare with."""

from pathlib import Path
from typing import Any

import pytest
from transformers import TokenizersBackend

from api.pipeline.served_model import ServedModel, load_served_model
from api.settings import ApiSettings


@pytest.fixture(scope="session")
def settings(smollm2_folder: Path) -> ApiSettings:
    return ApiSettings(model=str(smollm2_folder), model_name="smollm2-135m", timeout_s=600.0, expected_tokens=512)


@pytest.fixture(scope="session")
def model(settings: ApiSettings) -> ServedModel:
    return load_served_model(settings)


@pytest.fixture(scope="session")
def reference(smollm2_folder: Path) -> Any:
    """A transformers tokenizer of its own."""
    return TokenizersBackend.from_pretrained(str(smollm2_folder))
