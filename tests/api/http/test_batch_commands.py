"""`headrace batch` against a server: what it prints, and how it ends."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.cli import main
from tests.api.http.client import Json
from tests.api.http.conftest import Servers
from tests.models import TINY_MODEL
from tests.stack import WebServer

COMPLETIONS = "/v1/completions"


class CommandLine:
    """Runs `headrace batch ...` in this process."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        """The exit code, and what was printed on either output."""
        code = main(["batch", *map(str, arguments)])
        printed = self._captured.readouterr()
        return code, printed.out, printed.err

    def printed(self, *arguments: str | Path) -> str:
        """The output of a command that works and has nothing else to say."""
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def batch(capsys: pytest.CaptureFixture[str], tiny: WebServer, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("HEADRACE_URL", tiny.url)
    return CommandLine(capsys)


@pytest.fixture(scope="module")
def _driven(servers: Servers, tiny_model_folder: Path) -> Iterator[None]:
    """A process that drives the batches of the tiny model."""
    process = servers.stack.start_batch(HEADRACE_MODEL=str(tiny_model_folder))
    yield
    process.kill()
    servers.stack.batches.remove(process)


def write(folder: Path, *lines: Json) -> Path:
    file = folder / 'in "1".jsonl'
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def line(custom_id: str, **body: object) -> Json:
    asked = {"model": TINY_MODEL, "prompt": custom_id, "max_tokens": 2, **body}
    return {"custom_id": custom_id, "method": "POST", "url": COMPLETIONS, "body": asked}


def rows(text: str) -> dict[str, Json]:
    return {row["custom_id"]: row for row in map(json.loads, text.splitlines())}


@pytest.mark.usefixtures("_driven")
def test_a_file_is_submitted_watched_and_its_results_are_read(batch: CommandLine, tmp_path: Path) -> None:
    lines = [*(line(f"good-{i}") for i in range(5)), line("bad", model="other")]
    batch_id = batch.printed("submit", write(tmp_path, *lines), "--metadata", "a=b=c", "--metadata", "d=").strip()

    code, out, err = batch("watch", batch_id)
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == f"completed [{'#' * 30}] 6/6, 1 failed"
    status = json.loads(batch.printed("status", batch_id))
    assert (status["endpoint"], status["completion_window"]) == (COMPLETIONS, "24h")
    assert status["metadata"] == {"a": "b=c", "d": ""}

    answers = batch.printed("results", batch_id)
    assert set(rows(answers)) == {f"good-{i}" for i in range(5)}
    assert batch.printed("results", batch_id, "-o", tmp_path / "out.jsonl") == ""
    assert (tmp_path / "out.jsonl").read_text() == answers
    assert sorted(path.name for path in tmp_path.iterdir()) == ['in "1".jsonl', "out.jsonl"]
    assert rows(batch.printed("results", batch_id, "--errors"))["bad"]["response"]["status_code"] == 404


@pytest.mark.usefixtures("_driven")
def test_a_batch_that_fails_says_why(batch: CommandLine, tmp_path: Path) -> None:
    file = write(tmp_path, {"custom_id": "a"})
    batch_id = batch.printed("submit", file, "--endpoint", COMPLETIONS).strip()
    code, _, err = batch("watch", batch_id)
    assert code == 1
    assert err.splitlines()[-1].startswith("line 1: ")
    code, _, err = batch("results", batch_id)
    assert (code, err) == (1, "headrace: the batch has no answers\n")


def test_a_batch_that_waits_can_be_seen_and_cancelled(batch: CommandLine, tmp_path: Path) -> None:
    batch_id = batch.printed("submit", write(tmp_path, line("a")), "--window", "90m").strip()
    assert json.loads(batch.printed("status", batch_id))["completion_window"] == "90m"
    (first,) = batch.printed("list", "--limit", "1").splitlines()
    assert first.split()[0] == batch_id
    assert first.endswith(COMPLETIONS)
    assert batch.printed("cancel", batch_id) in ("cancelling\n", "cancelled\n")


@pytest.mark.parametrize("command", ["status", "watch", "cancel", "results"])
def test_a_batch_that_is_not_there_is_said_to_be_missing(batch: CommandLine, command: str) -> None:
    code, out, err = batch(command, "batch_x")
    assert (code, out) == (1, "")
    assert "No batch found" in err
    assert "HTTP 404" in err
    assert batch(command, "") == (1, "", "headrace: An id is empty.\n")


def test_a_file_that_cannot_be_sent_is_refused_by_name(batch: CommandLine, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", write(tmp_path)
    assert batch("submit", missing) == (1, "", f"headrace: cannot read {missing}: No such file or directory\n")
    code, _, err = batch("submit", empty)
    assert (code, err) == (1, f"headrace: no line of {empty} names a url; say which with --endpoint\n")
    code, _, err = batch("submit", empty, "--endpoint", COMPLETIONS)
    assert (code, err) == (1, "headrace: The file is empty. (HTTP 400)\n")
    code, _, err = batch("submit", write(tmp_path, line("a")), "--window", "soon")
    assert code == 1
    assert "completion_window" in err
    os.mkfifo(tmp_path / "pipe")
    code, _, err = batch("submit", tmp_path / "pipe")
    assert (code, err) == (1, f"headrace: {tmp_path / 'pipe'} is no regular file: its size must be known before\n")
    deep = tmp_path / "deep"
    deep.write_text("[" * 200_000)
    assert batch("submit", deep) == (1, "", f"headrace: no line of {deep} names a url; say which with --endpoint\n")


def test_without_its_key_a_client_is_told_so(
    batch: CommandLine, strict: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_URL", strict.url + "/v1/")
    code, _, err = batch("list")
    assert code == 1
    assert "HTTP 401" in err
    monkeypatch.setenv("HEADRACE_API_KEY", "open")
    assert batch("list")[0] == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:8000", "ftp://x"])
def test_a_server_that_is_not_there_is_named(batch: CommandLine, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HEADRACE_URL", url)
    code, out, err = batch("status", "batch_x")
    assert (code, out) == (1, "")
    assert err.startswith("headrace: ")
    assert url in err
    assert "HEADRACE_URL" in err


def test_what_is_no_pair_is_no_metadata(batch: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        batch("submit", "x", "--metadata", "a")
    assert "'a' is not KEY=VALUE" in capsys.readouterr().err
