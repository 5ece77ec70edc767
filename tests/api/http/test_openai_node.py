"""Given OpenAI's own SDK for Node.js, everything it offers for completions works against this server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api.http.client import DEADLINE_S
from tests.api.http.reciter import RECITER
from tests.stack import WebServer

FOLDER = Path(__file__).parents[2] / "node"
CONTENT = " that gave it a name."


@pytest.fixture
def seen(server: WebServer) -> dict[str, Any]:
    """What the script saw. Node.js and the SDK are installed by ``make test``."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["node", "conformance.mjs", f"{server.url}/v1", RECITER]
    environ = {**os.environ, "PATH": path}
    done = subprocess.run(
        command, cwd=FOLDER, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_sdk_for_node_sees_what_it_expects(seen: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": CONTENT, "refusal": None}
    invalid = ["BadRequestError", 400, "invalid_request_error"]
    assert seen == {
        "whole": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}],
        "usage": 6,
        "deltas": [
            {"role": "assistant", "content": ""},
            *({"content": piece} for piece in (" that", " gave", " it", " a", " name", ".")),
            {},
        ],
        "usages": [None] * 8 + [6],
        "helper": {"content": f"{CONTENT} The river rises in the", "finish": "stop"},
        "completion": [" river rises", " rises in"],
        "texts": [" river rises", " rises in"],
        "models": [RECITER, "gpt-4o", "org/model"],
        "model": "headrace",
        "headers": [["chatcmpl", RECITER], 32],
        "errors": {
            "messages": [*invalid, "messages", None],
            "model": ["NotFoundError", 404, "invalid_request_error", "model", "model_not_found"],
            "context": [*invalid, "prompt", "context_length_exceeded"],
            "unserved": [*invalid, "prediction", "unsupported_parameter"],
        },
        "stopped": {"role": "assistant", "content": ""},
    }
