"""gunicorn's own log as JSON lines, like every other line of the process."""

from typing import Any

from gunicorn.glogging import Logger

from worker.protocol.structured_log import JsonFormatter


class JsonLogger(Logger):  # type: ignore[misc]
    """The lines of the arbiter and of its workers: start, stop, and what went wrong outside the app."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(JsonFormatter())
