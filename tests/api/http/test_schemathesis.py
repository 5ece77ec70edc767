"""Requests made of the OpenAPI document, right ones and wrong ones, are answered as it says."""

import os
import subprocess
import sys
from pathlib import Path

from tests.api.http import openapi_hooks
from tests.models import TINY_MODEL
from tests.stack import WebServer

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
OPTIONS = {
    "--phases": "examples,fuzzing",
    "--checks": ",".join(CHECKS),
    "--mode": "all",
    "--max-examples": "3",
    "--seed": "1",
    "--generation-database": "none",
    "--request-timeout": "30",
    "--warnings": "off",
}
DEADLINE_S = 240.0


def test_schemathesis_finds_no_answer_that_the_document_does_not_tell_of(tiny: WebServer, tmp_path: Path) -> None:
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{tiny.url}/openapi.json"),
            *("--no-shrink", "--continue-on-failure"),
            *(word for option in OPTIONS.items() for word in option),
        ],
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": openapi_hooks.__name__,
            openapi_hooks.SERVED_MODEL: TINY_MODEL,
            "PYTHONPATH": str(Path.cwd()),
        },
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
