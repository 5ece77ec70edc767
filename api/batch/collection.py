"""Jobs of a batch that have ended become rows, shown as a live client would have seen their answers."""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from api.batch.desk import NUM_A_STEP, Desk
from api.batch.line_writer import LineWriter
from api.batch.records import Batch
from api.batch.rows import STOPPED, Part, answered_row, refused_row, unanswered_row
from api.batch.store import Collected
from api.batch.submission import LineView
from api.errors import ApiError
from api.relay.dialects.registry import dialect_of
from api.relay.outcomes import error_of
from worker.protocol.event import Terminal

log = logging.getLogger("headrace.batch")

STOP_CODE = "batch_stopped"  # of jobs that end because their batch does
_PATIENCE_MS = 2000  # so long ended jobs may wait until there are enough of them for a part

Usage = Counter[str]


@dataclass(frozen=True)
class Parts:
    """Where rows go: answers into the one, everything else into the other."""

    output: Part
    error: Part


class Collection:
    def __init__(self, desk: Desk, lines: LineWriter) -> None:
        self._desk = desk
        self._lines = lines

    def collect(self, batch: Batch) -> bool:
        """Rows of open jobs that have ended, some of them; whether there were any.

        A few wait for more of them, unless they are the last.
        """
        places = self._desk.store.open_places(batch.id)
        states = self._desk.shared.queue.states(self._lines.job_ids(batch, places))
        ended = [place for place, state in zip(places, states, strict=True) if state not in ("queued", "running")]
        is_little = len(ended) < min(NUM_A_STEP, len(places))
        if not ended or (is_little and batch.now_ms - batch.collected_ms < _PATIENCE_MS):
            return False
        return self.close(batch, ended[:NUM_A_STEP])

    def close(self, batch: Batch, places: list[int]) -> bool:
        """Write the rows of places whose jobs have ended. False when all of these are lost and run again now."""
        parts = Parts(Part(self._desk.storage, batch.id), Part(self._desk.storage, batch.id))
        usage, closed, lost = Usage(), [], []
        with parts.output, parts.error:
            for place, job_id in zip(places, self._lines.job_ids(batch, places), strict=True):
                used = self._add_row(batch, job_id, parts)
                if used is None:
                    lost.append(place)
                    continue
                usage.update(used)
                closed.append(place)
            if lost:
                log.warning("the broker lost jobs of a batch", extra={"batch_id": batch.id, "num_jobs": len(lost)})
                closed += self._lines.run_again(batch, lost, parts.error)
        if not closed:
            return False
        names = (parts.output.name, parts.error.name)
        collected = Collected(closed, parts.output.num_rows, parts.error.num_rows, *names, usage)
        if self._desk.store.collect(batch.id, collected):
            self._desk.shared.queue.drop(self._lines.job_ids(batch, closed))
        return True

    def _add_row(self, batch: Batch, job_id: str, parts: Parts) -> Usage | None:
        """Write the row of a job that has ended; the tokens it used. None when Redis has lost it."""
        kept = self._desk.shared.queue.describe(job_id).get("client_state")
        events = self._desk.shared.queue.replay(job_id, 0)
        if kept is None or not events or not isinstance(events[-1], Terminal):
            return None
        view, terminal = msgspec.json.decode(kept, type=LineView), events[-1]
        error = error_of(terminal)
        if error is None:
            body = dialect_of(job_id, view).whole(events)
            self._keep(job_id, view, body)
            parts.output.add(answered_row(batch, view.number, view.custom_id, body))
            return _usage_of(body)
        if terminal.code == STOP_CODE and batch.cause:
            parts.error.add(unanswered_row(batch, view.number, view.custom_id, STOPPED[batch.cause]))
        else:
            parts.error.add(refused_row(batch, view.number, view.custom_id, error))
        return Usage()

    def _keep(self, job_id: str, view: LineView, body: dict[str, Any]) -> None:
        """A response can be read and gone on from afterwards, as a live one."""
        if view.endpoint != "responses":
            return
        try:
            self._desk.shared.responses.keep_answer(job_id, body)
        except ApiError as error:
            log.warning("an answer is not kept", extra={"job_id": job_id, "error": error.message})


def _usage_of(body: dict[str, Any]) -> Usage:
    """Of a chat or text completion, or of a response: they name the same things differently."""
    usage = body.get("usage") or {}
    given = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    made = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("prompt_tokens", 0) + usage.get("input_tokens", 0),
        cached_tokens=given.get("cached_tokens", 0),
        output_tokens=usage.get("completion_tokens", 0) + usage.get("output_tokens", 0),
        reasoning_tokens=made.get("reasoning_tokens", 0),
    )
