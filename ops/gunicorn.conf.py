"""gunicorn for the API: gevent workers, preloaded.

This file is read before the app is imported, so what must come first is here: gevent's patches before anything that
binds sockets or threads, and the variables that libraries read when they are imported.
"""

from gevent import monkey

monkey.patch_all()

import atexit  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

# The tokenizer's own thread pool does not survive a fork; our bounded pool of native threads calls it instead.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# The metrics of all processes meet in this folder. It must be there before prometheus_client is imported.
_metrics_folder = tempfile.mkdtemp(prefix="headrace-metrics-")
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _metrics_folder
_master_pid = os.getpid()


@atexit.register
def remove_metrics() -> None:
    """Also where the settings turn out to be bad. The workers, forked from this process, leave it alone."""
    if os.getpid() == _master_pid:
        shutil.rmtree(_metrics_folder, ignore_errors=True)


from prometheus_client import multiprocess  # noqa: E402

from api.settings import ApiSettings  # noqa: E402
from worker.protocol.configuration import BadSetting, read_settings  # noqa: E402

try:
    _settings = read_settings(ApiSettings)
except BadSetting as error:
    print(f"headrace web: {error}", file=sys.stderr)
    raise SystemExit(os.EX_CONFIG) from error

wsgi_app = "api.app:create_app()"
bind = f"[{_settings.host}]:{_settings.port}" if ":" in _settings.host else f"{_settings.host}:{_settings.port}"
workers = _settings.web_processes
worker_class = "api.web_worker.WebWorker"
logger_class = "api.web_log.JsonLogger"
worker_connections = _settings.max_connections
preload_app = True
reuse_port = True  # a new instance can accept before the old one stops
backlog = 2048
timeout = 60
graceful_timeout = int(_settings.grace_s)
keepalive = 75
control_socket_disable = True
accesslog = None
errorlog = "-"
loglevel = _settings.log_level
max_requests = 0

_ALIVE_POLL_S = 0.2
_FAREWELL_S = 5.0  # of the grace period, kept for the close handshakes


def post_worker_init(worker: Any) -> None:
    """gunicorn has no hook for a graceful stop: it clears a flag and waits for the connections to end."""

    def send_websockets_away() -> None:
        while worker.alive:
            time.sleep(_ALIVE_POLL_S)
        worker.wsgi.extensions["headrace"].websockets.drain(max(0.0, _settings.grace_s - _FAREWELL_S))

    threading.Thread(target=send_websockets_away, name="drain", daemon=True).start()


def child_exit(server: Any, worker: Any) -> None:  # noqa: ARG001
    """Live gauges of a dead process must not linger in the sums."""
    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
