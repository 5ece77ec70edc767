"""What an engine holds and has done, in numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStats:
    """Counts of sequences, pages, tokens, preemptions and jobs; the totals since the start."""

    num_running: int
    num_waiting: int
    num_pages: int
    num_free_pages: int
    num_held_pages: int
    num_cached_pages: int
    num_prompt_tokens_total: int
    num_generated_tokens_total: int
    num_preemptions_total: int
    num_failed_jobs_total: int
    num_prefix_queried_tokens_total: int
    num_prefix_hit_tokens_total: int
