"""All of Headrace as real processes on free ports: a broker, API servers of their own, workers."""

import signal
import sys
from pathlib import Path

from ops.ports import free_port
from ops.readiness import ask
from tests.processes import GENEROUS_S, RunningProcess, clean_environment, start_broker

LOOPBACK = "127.0.0.1"
TEST_SETTINGS = {
    "HEADRACE_WEB_PROCESSES": "1",
    "HEADRACE_WORKER_METRICS_PORT": "0",
    "HEADRACE_THREADS": "1",
    "HEADRACE_DTYPE": "float32",
    "HEADRACE_WEB_GRACE_S": "10",
    "HEADRACE_WORKER_GRACE_S": "5",
}


class WebServer:
    """One gunicorn on a port of its own; restarted it keeps the port."""

    def __init__(self, port: int, log: Path, environ: dict[str, str]) -> None:
        self.port = port
        self._log = log
        self._environ = {**environ, "HEADRACE_PORT": str(port)}
        self.process = self._run()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def websocket_url(self) -> str:
        return f"ws://{LOOPBACK}:{self.port}/v1/ws"

    def restart(self) -> None:
        """A new server in the place of one that has ended."""
        self.process = self._run()

    def wait_ready(self, deadline_s: float = GENEROUS_S) -> None:
        """Until /readyz says 200: the broker answers and a worker serves the model."""
        self.process.wait_until(lambda: ask(LOOPBACK, self.port) is None, f"{self.url}/readyz says 200", deadline_s)

    def _run(self) -> RunningProcess:
        return RunningProcess([sys.executable, "-m", "ops.cli", "web"], self._log, self._environ)


class Stack:
    """Serves the model in `model`, with HEADRACE_ settings on top of those for tests. Logs lie in `folder`.

    A context manager: at the end nothing of it runs any more, and after an error the ends of the logs are shown.
    """

    def __init__(self, folder: Path, model: Path, **settings: str) -> None:
        self.folder = folder
        self.broker_port = free_port()
        self.environ = clean_environment(
            **{
                **TEST_SETTINGS,
                "HEADRACE_MODEL": str(model),
                "HEADRACE_REDIS_URL": f"redis://{LOOPBACK}:{self.broker_port}/0",
                **settings,
            }
        )
        self.broker = start_broker(folder / "broker", self.broker_port)
        self.webs: list[WebServer] = []
        self.workers: list[RunningProcess] = []

    @property
    def redis_url(self) -> str:
        return self.environ["HEADRACE_REDIS_URL"]

    @property
    def web(self) -> WebServer:
        """The first API server, which most tests have alone."""
        return self.webs[0]

    @property
    def url(self) -> str:
        return self.web.url

    def start(self, num_webs: int = 1, num_workers: int = 1) -> "Stack":
        """Start so many of each and wait until they serve."""
        for _ in range(num_workers):
            self.start_worker()
        for _ in range(num_webs):
            self.start_web()
        if num_workers > 0:
            self.wait_ready()
        return self

    def start_web(self, **settings: str) -> WebServer:
        log = self.folder / f"web-{len(self.webs)}.log"
        self.webs.append(WebServer(free_port(), log, {**self.environ, **settings}))
        return self.webs[-1]

    def start_worker(self, **settings: str) -> RunningProcess:
        log = self.folder / f"worker-{len(self.workers)}.log"
        command = [sys.executable, "-m", "worker"]
        self.workers.append(RunningProcess(command, log, {**self.environ, **settings}))
        return self.workers[-1]

    def wait_ready(self, deadline_s: float = GENEROUS_S) -> None:
        for web in self.webs:
            web.wait_ready(deadline_s)

    def start_broker(self) -> None:
        """A new broker, with the data of the one that has ended, on the same port."""
        self.broker = start_broker(self.folder / "broker", self.broker_port)

    def restart_broker(self) -> None:
        """As an operator would: ask it to end, start it again."""
        self.broker.terminate()
        self.start_broker()

    def close(self) -> None:
        """End all processes, the clients of the broker before the broker."""
        for process in [*(web.process for web in self.webs), *self.workers, self.broker]:
            process.send(signal.SIGCONT)  # a test may have stopped it
            process.kill()

    def logs(self) -> str:
        """The end of each process's log."""
        processes = [*(web.process for web in self.webs), *self.workers, self.broker]
        return "\n".join(f"--- {process.log.name}\n{process.last_lines()}" for process in processes)

    def __enter__(self) -> "Stack":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is not None:
            print(self.logs())
