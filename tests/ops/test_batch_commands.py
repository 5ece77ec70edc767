"""What `headrace batch` says and how it ends where the key, the server or the reader of its output is at fault."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ops.cli import main
from tests.processes import clean_environment

FAILED = {
    "status": "failed",
    "request_counts": {"total": 0, "completed": 0, "failed": 0},
    "output_file_id": "file-answers",
    "errors": {
        "data": [
            {"line": 3, "message": "Line 3: 'url' is missing.", "code": "invalid_line"},
            {"line": 4, "message": "The model 'x' does not exist.", "code": "model_not_found"},
            {"line": None, "message": "No line is good.", "code": "empty"},
        ]
    },
}
BIG = {"metadata": {"text": "x" * 1_000_000}}  # more than a pipe holds
BATCHES: dict[str, Any] = {"big": BIG, "failed": FAILED}
ANSWERS = b'{"custom_id": "a"}\n' * 100_000
NO_KEY = {"error": {"message": "You didn't provide an API key."}}
WRONG_KEY = {"error": {"message": "Incorrect API key provided."}}

Printed = pytest.CaptureFixture[str]


class Answers(BaseHTTPRequestHandler):
    """Each batch by its name; `closed` asks for a key."""

    def do_GET(self) -> None:
        name = self.path.split("/")[3]
        if name == "file-answers":
            self._answer(200, ANSWERS)
        elif name == "closed":
            self._answer(401, json.dumps(WRONG_KEY if self.headers["Authorization"] else NO_KEY).encode())
        else:
            self._answer(200, json.dumps(BATCHES[name]).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("HEADRACE_URL", url)
        yield url
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("command", [("status", "big"), ("results", "failed")])
def test_given_a_reader_that_has_enough_then_it_ends_in_silence(url: str, command: tuple[str, ...]) -> None:
    arguments = [sys.executable, "-m", "ops.entry", "batch", *command]
    process = subprocess.Popen(
        arguments, env=clean_environment(HEADRACE_URL=url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("key", ["s3cret\n", "s3cr\u00e9t", "s3\x7fcret"])
def test_given_a_key_that_no_header_can_carry_then_the_setting_is_named_and_the_key_is_not(
    key: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", key)

    assert main(["batch", "status", "big"]) == 1
    expected = "headrace: HEADRACE_API_KEY: must be printable ASCII on one line\n"
    assert tuple(capsys.readouterr()) == ("", expected)


def test_given_a_server_that_asks_for_a_key_then_the_setting_is_named(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["batch", "status", "closed"]) == 1
    assert capsys.readouterr().err == "headrace: You didn't provide an API key. (HTTP 401) Set HEADRACE_API_KEY.\n"

    monkeypatch.setenv("HEADRACE_API_KEY", "wrong")
    assert main(["batch", "status", "closed"]) == 1
    assert capsys.readouterr().err == "headrace: Incorrect API key provided. (HTTP 401) Is HEADRACE_API_KEY right?\n"


def test_the_line_of_an_error_is_said_once(capsys: Printed) -> None:
    assert main(["batch", "watch", "failed"]) == 1
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "line 3: 'url' is missing. (invalid_line)",
        "line 4: The model 'x' does not exist. (model_not_found)",
        "No line is good. (empty)",
    ]


@pytest.mark.parametrize("port", ["many", "0", "70000", "8000/a b"])
def test_given_a_url_that_no_request_can_carry_then_the_setting_is_named(
    port: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_URL", f"http://127.0.0.1:{port}")

    assert main(["batch", "status", "big"]) == 1
    expected = f"headrace: HEADRACE_URL=http://127.0.0.1:{port}: expected http://HOST:PORT\n"
    assert capsys.readouterr().err == expected
