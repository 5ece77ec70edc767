"""`headrace up`: everything on this machine, under one supervisor."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from api.batch.settings import BatchSettings, check_webhooks
from api.settings import ApiSettings
from ops import broker
from ops.ports import free_port, held, is_listening, is_port_free
from ops.procfile import read_procfile
from ops.readiness import ReadinessWatch
from ops.settings import OpsSettings
from ops.settings_table import all_settings
from ops.supervision import Plan
from ops.supervisor import Supervisor
from ops.welcome import answering_host, url_address, welcome
from worker.protocol.configuration import read_settings, refuse_unknown_keys
from worker.protocol.model_identity import default_model_folder, is_whole, resolve_model
from worker.settings import WorkerSettings

SERVING = ("web", "worker")  # together they answer
STOP_ORDER = ("web", "batch", "worker", "broker")
LAST_MOMENTS_S = 5.0  # on top of a process's own grace, before it is killed
BROKER_GRACE_S = 15.0  # to write the append-only file out
OTHER_GRACE_S = 10.0


class CannotStart(RuntimeError):
    """Headrace cannot start as things are; the message says why and what to do."""


def up(procfile: Path) -> int:
    """Run until stopped by a signal; the exit code. Raises CannotStart, BadProcfile, BadSetting, ModelNotPrepared."""
    environ = child_environment(os.environ)
    refuse_unknown_keys(all_settings(), environ)
    commands = read_procfile(procfile)
    if read_settings(OpsSettings, environ).redis_url:
        commands.pop("broker", None)
    check_webhooks(read_settings(BatchSettings, environ))
    settle_ports(environ, has_broker="broker" in commands)
    api = read_settings(ApiSettings, environ)
    with held(answering_host(api.host), api.port):  # API processes would share it with those of another `up`
        return _supervise(commands, environ, ensure_model(environ))


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the processes get: this installation's commands come first on the path, and no output is held back."""
    own = Path(sys.executable).parent
    return {**environ, "PATH": f"{own}{os.pathsep}{environ.get('PATH', os.defpath)}", "PYTHONUNBUFFERED": "1"}


def settle_ports(environ: dict[str, str], has_broker: bool) -> None:
    """Replace port 0 in `environ` by a free port and point the others at the broker. Raises CannotStart."""
    api = read_settings(ApiSettings, environ)
    host = answering_host(api.host)
    try:
        is_port_free(host, 0)
    except OSError as error:
        raise CannotStart(f"HEADRACE_HOST: cannot listen on {host}: {error}") from error
    _settle(environ, "HEADRACE_PORT", host, api.port)
    _check("HEADRACE_WORKER_METRICS_PORT", "127.0.0.1", read_settings(WorkerSettings, environ).metrics_port)
    if has_broker:
        _settle(environ, "HEADRACE_BROKER_PORT", broker.HOST, read_settings(OpsSettings, environ).broker_port)
        environ["HEADRACE_REDIS_URL"] = f"redis://{broker.HOST}:{environ['HEADRACE_BROKER_PORT']}/0"


def _settle(environ: dict[str, str], variable: str, host: str, port: int) -> None:
    _check(variable, host, port)
    environ[variable] = str(port or free_port(host))


def _check(variable: str, host: str, port: int) -> None:
    if port > 0 and not is_port_free(host, port):
        raise CannotStart(f"port {port} is in use by another program: choose another with {variable} (0: any free one)")


def ensure_model(environ: Mapping[str, str]) -> str:
    """The served name. Prepares the default model first, where it is the one to serve and is not there."""
    settings = read_settings(ApiSettings, environ)
    if settings.model == "" and not is_whole(default_model_folder(environ)):
        # In a process of its own: the libraries it loads would stay in the supervisor's memory.
        prepared = subprocess.run([sys.executable, "-m", "ops.cli", "prepare"], env=environ, check=False)
        if prepared.returncode != 0:
            raise CannotStart("the default model could not be prepared: HEADRACE_MODEL=/path/to/folder serves your own")
    return resolve_model(settings.model, settings.model_name)[1]


def plans(names: Sequence[str], environ: Mapping[str, str]) -> list[Plan]:
    """How each process is started and stopped: the broker before the others, with the grace its own settings name.

    Batches are driven once there is somebody to compute them: until then, that process would only slow the start.
    """
    graces = {
        "web": read_settings(ApiSettings, environ).grace_s + LAST_MOMENTS_S,
        "worker": read_settings(WorkerSettings, environ).grace_s + LAST_MOMENTS_S,
        "broker": BROKER_GRACE_S,
    }
    ordered = sorted(names, key=lambda name: name != "broker")
    return [Plan(name, _after(name, names), graces.get(name, OTHER_GRACE_S)) for name in ordered]


def _after(name: str, names: Sequence[str]) -> tuple[str, ...]:
    others = ("broker", *SERVING) if name == "batch" and set(SERVING) <= set(names) else ("broker",)
    return tuple(other for other in others if other in names and name != "broker")


def stop_order(names: Sequence[str]) -> list[str]:
    """Those who bring work in first, the broker last; a process unknown here goes before all of them."""
    return sorted(names, key=lambda name: STOP_ORDER.index(name) if name in STOP_ORDER else -1)


def _supervise(commands: Mapping[str, list[str]], environ: Mapping[str, str], model_name: str) -> int:
    names = tuple(commands)
    width = max(len(name) for name in (*names, "headrace"))

    def say(who: str, line: str) -> None:
        sys.stdout.write(f"{who:<{width}} | {line}\n")
        sys.stdout.flush()

    api = read_settings(ApiSettings, environ)
    watch = ReadinessWatch(answering_host(api.host), api.port, lambda line: say("headrace", line))
    probes = {"broker": lambda: is_listening(broker.HOST, int(environ["HEADRACE_BROKER_PORT"]))}
    if set(SERVING) <= set(names):
        probes |= dict.fromkeys(SERVING, lambda: watch.was_ready)
    supervisor = Supervisor(commands, plans(names, environ), stop_order(names), environ, probes, say)
    with watch:

        def welcome_once_ready() -> None:
            if watch.has_become_ready() and not supervisor.supervision.is_stopping:
                supervisor.supervision.all_up()
                sys.stdout.write(welcome(url_address(api.host, api.port), model_name, needs_key=api.api_keys != ""))
                sys.stdout.flush()

        return supervisor.run(welcome_once_ready)
