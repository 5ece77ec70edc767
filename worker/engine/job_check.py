"""Which jobs an engine can never run."""

from worker.protocol.job import Job


class JobRejected(ValueError):
    """This job can never run on this engine; the message says why."""


def check_job(job: Job, vocab_size: int, max_context: int) -> None:
    """Raises JobRejected."""
    if not job.prompts or not all(job.prompts):
        raise JobRejected("a prompt needs at least one token")
    if job.n < 1:
        raise JobRejected("n must be at least 1")
    if not all(0 <= token_id < vocab_size for token_id, _ in job.sampling.logit_bias):
        raise JobRejected(f"logit_bias names a token id outside 0 to {vocab_size - 1}")
    if job.sampling.max_tokens < 0:
        raise JobRejected("max_tokens must be at least 0")
    for prompt in job.prompts:
        _check_prompt(prompt, vocab_size, max_context)


def _check_prompt(prompt: tuple[int, ...], vocab_size: int, max_context: int) -> None:
    if len(prompt) >= max_context:
        raise JobRejected(
            f"this worker's maximum context length is {max_context} tokens, "
            f"and a prompt of {len(prompt)} leaves no room for an answer"
        )
    if not 0 <= min(prompt) <= max(prompt) < vocab_size:
        raise JobRejected(f"a prompt holds a token id outside 0 to {vocab_size - 1}")
