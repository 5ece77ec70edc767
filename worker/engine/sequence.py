"""A Sequence: one prompt and one answer growing behind it. Pure bookkeeping, no tensors, no text."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.protocol.job import Job, JobClass

USUAL_TIMEOUT_MS = 600_000  # what a job without a timeout is ordered by
PROMPT_LOGITS_A_STEP = 256  # of all prompts; each is a row with a number for each word of the vocabulary


class Sequence:
    """One choice of a job.

    `token_ids` is the prompt followed by the answer so far. The keys and values of the first `num_computed` of them
    lie in `pages`; the others are pending. `rank` orders service: class, then deadline, then arrival, then choice;
    lower goes first. Deadlines grow with the time of admission, so nobody is overtaken for ever.
    """

    def __init__(self, job: Job, choice: int, arrival: int, max_context: int) -> None:
        prompt = job.prompts[choice // job.n]
        self.job_id = job.id
        self.tenant = job.tenant
        self.choice = choice
        self.is_first_of_prompt = choice % job.n == 0
        self.job_class = job.job_class
        self.is_backfill = job.job_class > JobClass.INTERACTIVE  # takes what the others leave
        deadline_ms = job.created_s * 1000 + (job.timeout_ms or USUAL_TIMEOUT_MS)
        self.rank = (int(job.job_class), deadline_ms, arrival, choice)
        self.token_ids = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.limit = min(len(prompt) + job.sampling.max_tokens, max_context)
        self.promised_tokens = min(len(prompt) + job.expected_tokens, self.limit)
        self.wants_prompt_logits = self.is_first_of_prompt and job.sampling.prompt_logprobs is not None
        self.num_computed = 0
        self.is_finished = False
        # Kept by the page keeper:
        self.pages: list[int] = []
        self.page_keys: list[bytes] = []  # of the full pages, as far as anyone asked
        self.num_entered_pages = 0  # from the first on: known to the prefix cache, or computed elsewhere before
        self.num_proven_pages = 0  # from the first on: full and known to hold finite numbers
        self.num_cached_tokens: int | None = None  # of the prompt, found at the first admission

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_pending(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def is_at_limit(self) -> bool:
        return len(self.token_ids) >= self.limit

    def append(self, token_ids: Iterable[int]) -> None:
        """Adds generated tokens, pending until a step computes them."""
        self.token_ids.extend(token_ids)
        self.wants_prompt_logits = False  # the prompt was told of with the first


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

    def without_last(self) -> "Span":
        return Span(self.sequence, self.start, self.stop - 1)

    @property
    def num_logit_rows(self) -> int:
        return self.num_tokens if self.sequence.wants_prompt_logits else int(self.needs_logits)


def num_rows(spans: Iterable[Span]) -> int:
    """Rows of a step with these spans: one for each token it computes."""
    return sum(span.num_tokens for span in spans)
