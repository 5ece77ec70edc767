"""The `headrace` command."""

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path

from ops.batch_client import Refused
from ops.batch_commands import add_batch_commands
from ops.entry import INTERRUPTED, become
from ops.procfile import BadProcfile
from ops.settings_table import settings_table
from ops.up import CannotStart, up
from worker.protocol.configuration import BadSetting, read_settings
from worker.protocol.connection import connect
from worker.protocol.model_identity import ModelNotPrepared, resolve_model
from worker.protocol.queue import JobQueue
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (BadSetting, BadProcfile, CannotStart, ModelNotPrepared, Refused, ValueError) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headrace", description="A self-hosted LLM server on a durable queue.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help, description=help)
        command.set_defaults(run=run)
        return command

    start = add("up", _up, "Start everything on this machine and keep it running.")
    start.add_argument("--procfile", type=Path, default=ROOT / "Procfile", help="the processes to run (%(default)s)")
    add("broker", _become, "Run the embedded broker.").set_defaults(program="broker")
    add("web", _become, "Run the API processes.").set_defaults(program="web")
    add("worker", _become, "Run one worker.").set_defaults(program="worker")
    add("batch-worker", _become, "Run one process that drives batches.").set_defaults(program="batch-worker")
    add("prepare", _prepare, "Download the default model, or check and repair it.")
    workers = add("workers", _workers, "Ask the workers of the model how they are, or to drain or resume.")
    workers.add_argument("question", choices=["ping", "stats", "drain", "resume"])
    workers.add_argument("name", nargs="*", help="workers to ask; none means all")
    add_batch_commands(commands.add_parser("batch", help="Submit, follow and read batches."))
    add("doctor", _doctor, "Count the queue again from its jobs, and requeue jobs that no worker holds.")
    add("settings", _settings, "Print all settings, their defaults and their meaning.")
    add("version", _version, "Print the version.")
    return parser


def _up(options: argparse.Namespace) -> int:
    return up(options.procfile)


def _become(options: argparse.Namespace) -> int:
    become(options.program)


def _prepare(_: argparse.Namespace) -> int:
    from ops.prepare_model import prepare_default_model  # noqa: PLC0415  loads torch

    print(prepare_default_model())
    return 0


def _workers(options: argparse.Namespace) -> int:
    from worker.control import ask  # noqa: PLC0415  kombu takes a moment to load

    settings = read_settings(WorkerSettings)
    _, pool = resolve_model(settings.model, settings.model_name)
    url = settings.celery_broker_url or settings.redis_url
    answers = ask(url, pool, options.question, options.name)
    print(json.dumps(answers, indent=2, sort_keys=True))
    return 0 if answers else 1


def _doctor(_options: argparse.Namespace) -> int:
    settings = read_settings(WorkerSettings)
    _, pool = resolve_model(settings.model, settings.model_name)
    print(json.dumps(JobQueue(connect(settings.redis_url), pool).rebuild()))
    return 0


def _settings(_: argparse.Namespace) -> int:
    print(settings_table())
    return 0


def _version(_: argparse.Namespace) -> int:
    print(importlib.metadata.version("headrace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
