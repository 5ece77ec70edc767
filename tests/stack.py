"""All of Headrace as real processes on free ports: a broker, API servers of their own, workers."""

import re
import signal
import sys
import threading
from pathlib import Path

import httpx
import redis

from ops.ports import free_port
from ops.readiness import ask
from tests.processes import GENEROUS_S, RunningProcess, clean_environment, start_broker
from worker.protocol.connection import connect

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
        return RunningProcess([sys.executable, "-m", "ops.entry", "web"], self._log, self._environ)


class RestartedWorker:
    """Starts its command again whenever it ends, until stopped."""

    def __init__(self, command: list[str], log: Path, environ: dict[str, str]) -> None:
        self.num_starts = 0
        self._command = command
        self._log = log
        self._environ = environ
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(GENEROUS_S)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            process = RunningProcess(self._command, self._log, self._environ)
            self.num_starts += 1
            while process.exit_code is None and not self._is_stopping.wait(0.05):
                pass
            process.kill()


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
                "HEADRACE_DATA": str(folder / "data"),
                "HEADRACE_REDIS_URL": f"redis://{LOOPBACK}:{self.broker_port}/0",
                **settings,
            }
        )
        self.broker = start_broker(folder / "broker", self.broker_port)
        self.webs: list[WebServer] = []
        self.workers: list[RunningProcess] = []
        self.batches: list[RunningProcess] = []
        self._restarted: list[RestartedWorker] = []

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

    def start_batch(self, **settings: str) -> RunningProcess:
        """A process that drives batches."""
        log = self.folder / f"batch-{len(self.batches)}.log"
        command = [sys.executable, "-m", "ops.entry", "batch-worker"]
        self.batches.append(RunningProcess(command, log, {**self.environ, **settings}))
        return self.batches[-1]

    def run_worker_again_and_again(self, command: list[str]) -> "RestartedWorker":
        """A worker that is started anew whenever it dies, as under the supervisor."""
        restarted = RestartedWorker(command, self.folder / "restarted-worker.log", self.environ)
        self._restarted.append(restarted)
        return restarted

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=GENEROUS_S)

    def redis(self) -> redis.Redis:
        return connect(self.redis_url)

    def worker_pages(self, worker: RunningProcess | None = None) -> dict[str, float]:
        """KV pages by state, as the worker's own /metrics tells them."""
        log = (worker or self.workers[-1]).log_text()
        ports = re.findall(r'"metrics_port": (\d+)', log)
        text = httpx.get(f"http://{LOOPBACK}:{ports[-1]}/metrics", timeout=GENEROUS_S).text
        found = re.findall(r'^headrace_kv_pages\{state="(\w+)"\} (\S+)', text, re.MULTILINE)
        return {state: float(number) for state, number in found}

    def mend(self, num_webs: int = 1) -> "Stack":
        """Give a stack that a test has broken what it lacks: a broker, live API servers, one fresh worker."""
        if self.broker.exit_code is not None:
            self.start_broker()
        for web in self.webs:
            if web.process.exit_code is not None:
                web.restart()
        for _ in range(num_webs - len(self.webs)):
            self.start_web()
        if all(worker.exit_code is not None for worker in self.workers):
            self.start_worker()
        self.wait_ready()
        return self

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
        for restarted in self._restarted:
            restarted.stop()
        for process in self._processes():
            process.send(signal.SIGCONT)  # a test may have stopped it
            process.kill()

    def logs(self) -> str:
        """The end of each process's log."""
        return "\n".join(f"--- {process.log.name}\n{process.last_lines()}" for process in self._processes())

    def _processes(self) -> list[RunningProcess]:
        """The clients of the broker before the broker."""
        return [*(web.process for web in self.webs), *self.batches, *self.workers, self.broker]

    def __enter__(self) -> "Stack":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is not None:
            print(self.logs())
