"""The lines of a batch by their places in its plan: run one, or write the row of one that is not run."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from api.batch.desk import Desk
from api.batch.input_copies import InputCopies
from api.batch.plan import LinePlan
from api.batch.records import Batch
from api.batch.rows import STOPPED, Part, refused_row, unanswered_row
from api.batch.submission import NotNow, Submission
from api.batch.validation import custom_id_of

_NUM_PLANS = 4


class LineWriter:
    def __init__(self, desk: Desk) -> None:
        self._storage = desk.storage
        self._inputs = InputCopies(desk.storage)
        self._submission = Submission(desk.shared, desk.settings)
        self._plan_named: Callable[[str], LinePlan] = lru_cache(maxsize=_NUM_PLANS)(self._read_plan)

    def job_ids(self, batch: Batch, places: Iterable[int]) -> list[str]:
        plan = self._plan_named(batch.plan)
        return [self._submission.job_id(batch, plan[place].number) for place in places]

    def all_job_ids(self, batch: Batch) -> list[str]:
        """Where the storage has lost the plan, of all lines: blank ones aside, they are numbered without a gap."""
        try:
            return self.job_ids(batch, range(batch.num_planned))
        except FileNotFoundError:
            return [self._submission.job_id(batch, number) for number in range(1, batch.counts["total"] + 1)]

    def run(self, batch: Batch, places: Sequence[int], part: Part) -> tuple[list[int], list[int]]:
        """Submit lines until the queue wants no more: (places that are jobs now, places refused, their rows written).

        Raises redis.RedisError, StorageUnavailable, or FileNotFoundError when the input file is gone.
        """
        plan = self._plan_named(batch.plan)
        opened: list[int] = []
        refused: list[int] = []
        with contextlib.suppress(NotNow), self._inputs.reader(batch.order.input_file_id) as read:
            self._submission.check_open()
            for place in places:
                line = plan[place]
                custom_id, refusal = self._submission.submit(batch, line.number, read(line))
                if refusal is None:
                    opened.append(place)
                else:
                    part.add(refused_row(batch, line.number, custom_id, refusal))
                    refused.append(place)
        return opened, refused

    def run_again(self, batch: Batch, lost: Sequence[int], part: Part) -> list[int]:
        """Of jobs that Redis has lost. Returns those that are not to be run any more; their rows are written."""
        if batch.cause:
            self.skip(batch, lost, part)
            return list(lost)
        return self.run(batch, lost, part)[1]

    def skip(self, batch: Batch, places: Iterable[int], part: Part) -> None:
        """Write the rows of lines that are not run because the batch was stopped."""
        plan = self._plan_named(batch.plan)
        lines = [plan[place] for place in places]
        with self._inputs.reader(batch.order.input_file_id) as read:
            for line in lines:
                custom_id = custom_id_of(read(line))
                part.add(unanswered_row(batch, line.number, custom_id, STOPPED[batch.cause]))

    def _read_plan(self, name: str) -> LinePlan:
        with self._storage.open(name) as file:
            return LinePlan(file.read())
