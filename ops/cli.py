"""The `headrace` command."""

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ops.batch_client import Refused
from ops.batch_commands import add_batch_commands
from ops.entry import INTERRUPTED, become
from ops.procfile import BadProcfile
from ops.queue_commands import BrokerRefused, ask_workers, doctor
from ops.settings_table import settings_table
from ops.up import CannotStart, up
from worker.protocol.configuration import BadSetting
from worker.protocol.model_identity import ModelNotPrepared

ROOT = Path(__file__).resolve().parent.parent
OUTPUT_CLOSED = 141  # what a shell reports of a program ended by SIGPIPE
_EXPECTED = (BadSetting, BadProcfile, BrokerRefused, CannotStart, ModelNotPrepared, Refused)  # their messages say all


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Who read our output has enough of it, as `head` does. What is left would fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    except (*_EXPECTED, ValueError) as error:
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
    workers = add("workers", ask_workers, "Ask the workers of the model how they are, or to drain or resume.")
    workers.add_argument("question", choices=["ping", "stats", "drain", "resume"])
    workers.add_argument("name", nargs="*", help="workers to ask; none means all")
    add_batch_commands(commands.add_parser("batch", help="Submit, follow and read batches."))
    add("doctor", doctor, "Count the queue again from its jobs, and requeue jobs that no worker holds.")
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


def _settings(_: argparse.Namespace) -> int:
    print(settings_table())
    return 0


def _version(_: argparse.Namespace) -> int:
    print(importlib.metadata.version("headrace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
