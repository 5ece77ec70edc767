"""`headrace batch`: batches from the command line, over the public API of any Headrace server.

What a script wants stands alone on the standard output; all else is said on the standard error.
"""

import argparse
import json
import os
import stat
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from ops.batch_client import BatchClient, Refused
from ops.batch_progress import ENDED, Progress, num_done
from ops.settings import ClientSettings
from worker.protocol.configuration import read_settings

_PATIENCE_S = 60.0  # a watched server may be away for so long
_MAX_LISTED = 100

Json = dict[str, Any]


def add_batch_commands(command: argparse.ArgumentParser) -> None:
    """Below `headrace batch`."""
    commands = command.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help)
        added.set_defaults(run=run)
        return added

    submit = add("submit", _submit, "Upload a file of requests and run it as a batch. Prints the batch's id.")
    submit.add_argument("file", type=Path, metavar="FILE", help="one JSON object a line, as OpenAI's batches take them")
    submit.add_argument("--endpoint", help="such as /v1/chat/completions; without it, the url of the first line")
    submit.add_argument("--window", default="24h", help="the batch expires after so long (%(default)s)")
    submit.add_argument("--metadata", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    for name, run, help in (
        ("status", _status, "Print a batch as JSON."),
        ("watch", _watch, "Follow a batch to its end. Exits with 0 if it completed."),
        ("cancel", _cancel, "Stop a batch; what it has answered is kept."),
    ):
        add(name, run, help).add_argument("batch", metavar="ID")
    results = add("results", _results, "Print the answers of a batch, one JSON object a line.")
    results.add_argument("batch", metavar="ID")
    results.add_argument("--errors", action="store_true", help="the lines that failed instead")
    results.add_argument("-o", "--output", type=Path, metavar="FILE", help="write them there")
    listed = add("list", _list, "List the latest batches.")
    listed.add_argument("--limit", type=int, default=20, choices=range(1, _MAX_LISTED + 1), metavar="N")


def _submit(options: argparse.Namespace) -> int:
    client = _client()
    try:
        if not stat.S_ISREG(options.file.stat().st_mode):
            raise Refused(f"{options.file} is no regular file: its size must be known before", is_passing=False)
        endpoint = options.endpoint or _first_url(options.file)
        file = client.upload(options.file)
    except OSError as error:
        raise Refused(f"cannot read {options.file}: {error.strerror}", is_passing=False) from error
    batch = client.create(file["id"], endpoint, options.window, dict(options.metadata))
    print(batch["id"])
    return 0


def _status(options: argparse.Namespace) -> int:
    print(json.dumps(_client().batch(options.batch), indent=2, ensure_ascii=False))
    return 0


def _watch(options: argparse.Namespace) -> int:
    client, progress = _client(), Progress(sys.stderr)
    try:
        batch = _look(client, options.batch)
        progress.show(batch)
        while batch["status"] not in ENDED:
            time.sleep(1)
            batch = _look(client, options.batch)
            progress.show(batch)
    finally:
        progress.close()
    for error in (batch["errors"] or {}).get("data", []):
        print(_error_line(error), file=sys.stderr)
    return 0 if batch["status"] == "completed" else 1


def _error_line(error: Json) -> str:
    """Begins with the line it is about, which most messages name themselves."""
    place = f"line {error['line']}: " if error["line"] else ""
    message = str(error["message"])
    if message.lower().startswith(place):
        message = message[len(place) :]
    return f"{place}{message} ({error['code']})"


def _look(client: BatchClient, batch_id: str) -> Json:
    """Patient with a server that is away for a moment."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return client.batch(batch_id)
        except Refused as error:
            if not error.is_passing or time.monotonic() > give_up_at:
                raise
        time.sleep(1)


def _cancel(options: argparse.Namespace) -> int:
    print(_client().cancel(options.batch)["status"])
    return 0


def _results(options: argparse.Namespace) -> int:
    client = _client()
    batch = client.batch(options.batch)
    file_id = batch["error_file_id" if options.errors else "output_file_id"]
    if file_id is None:
        wanted, ended = ("errors" if options.errors else "answers"), batch["status"] in ENDED
        message = f"the batch has no {wanted}" if ended else f"the batch is {batch['status']}: it has no {wanted} yet"
        raise Refused(message, is_passing=False)
    try:
        _download(client, file_id, options.output)
    except BrokenPipeError:
        raise  # whoever reads the answers has enough of them
    except OSError as error:
        raise Refused(f"cannot write {options.output or 'the answers'}: {error.strerror}", is_passing=False) from error
    return 0


def _download(client: BatchClient, file_id: str, path: Path | None) -> None:
    """To the standard output where there is no path. A file is there as a whole or not at all."""
    if path is None:
        client.download(file_id, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as output:
            client.download(file_id, output)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _list(options: argparse.Namespace) -> int:
    for batch in _client().batches(options.limit):
        counts = batch["request_counts"] or {"total": 0}
        created = datetime.fromtimestamp(batch["created_at"]).astimezone().isoformat(sep=" ", timespec="seconds")
        done = f"{num_done(batch)}/{counts['total']}"
        print(f"{batch['id']}  {batch['status']:<11}  {done:>13}  {created}  {batch['endpoint']}")
    return 0


def _client() -> BatchClient:
    settings = read_settings(ClientSettings)
    return BatchClient(settings.url, settings.api_key)


def _first_url(path: Path) -> str:
    """Of the first line that has one."""
    with path.open("rb") as file:
        for line in file:
            try:
                url = json.loads(line)["url"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if isinstance(url, str):
                return url
    raise Refused(f"no line of {path} names a url; say which with --endpoint", is_passing=False)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
