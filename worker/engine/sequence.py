"""A Sequence: one prompt and the answer growing behind it. Pure bookkeeping, no tensors, no text."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.protocol.job import Job


class Sequence:
    """One choice of a job.

    `token_ids` is the prompt followed by the answer so far. The keys and values of the first `num_computed` of them
    lie in `pages`; the others are pending. `rank` orders service: class, then arrival, then choice; lower goes first.
    """

    def __init__(self, job: Job, choice: int, arrival: int, max_context: int) -> None:
        prompt = job.prompts[choice]
        self.job_id = job.id
        self.choice = choice
        self.job_class = job.job_class
        self.rank = (int(job.job_class), arrival, choice)
        self.token_ids = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.num_computed = 0
        self.pages: list[int] = []
        self.limit = min(len(prompt) + job.sampling.max_tokens, max_context)
        self.promised_tokens = min(len(prompt) + job.expected_tokens, self.limit)
        self.is_finished = False

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_pending(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def is_at_limit(self) -> bool:
        return len(self.token_ids) >= self.limit

    @property
    def is_sound(self) -> bool:
        """Whether a token was drawn from the last computed one: then all keys and values are known to be finite."""
        return self.num_generated > 0 and self.num_pending == 1

    def append(self, token_ids: Iterable[int]) -> None:
        """Adds generated tokens, pending until a step computes them."""
        self.token_ids.extend(token_ids)


@dataclass(frozen=True, slots=True)
class Span:
    """A run of pending tokens of one sequence that one step computes: `token_ids[start:stop]`."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def num_tokens(self) -> int:
        return self.stop - self.start

    @property
    def needs_logits(self) -> bool:
        """Whether the span reaches the sequence's end, so that its last row tells the next token."""
        return self.stop == len(self.sequence.token_ids)
