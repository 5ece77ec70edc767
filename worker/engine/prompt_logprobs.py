"""Log-probabilities of prompts: what the rows before the last tell of the tokens that follow them."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from worker.engine import buckets
from worker.engine.logprobs import RowLogprobs, row_logprobs
from worker.engine.sequence import Span


def prompt_logprobs(logits: torch.Tensor, span: Span, num_top: int) -> list[RowLogprobs]:
    """Of the prompt's tokens from place `span.start` + 1 on, as far as the span's rows `logits` [rows, V] tell."""
    sequence = span.sequence
    following = sequence.token_ids[span.start + 1 : min(span.stop, sequence.num_prompt_tokens - 1) + 1]
    if not following:
        return []
    token_ids = torch.tensor(following, device=logits.device)
    return row_logprobs(buckets.padded(logits[: len(following)]), token_ids, [num_top] * len(following))


def rows_of_spans(logits: torch.Tensor, spans: Sequence[Span]) -> list[torch.Tensor]:
    """Each span's part of a step's `logits` [R, V]."""
    return list(torch.split(logits, [span.num_logit_rows for span in spans]))


def last_rows(logits: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
    """The rows that tell the next token, [spans that need logits, V]."""
    if all(span.num_logit_rows == span.needs_logits for span in spans):
        return logits
    ends = accumulate(span.num_logit_rows for span in spans)
    wanted = [end - 1 for span, end in zip(spans, ends, strict=True) if span.needs_logits]
    return logits[torch.tensor(wanted, dtype=torch.int64, device=logits.device)]
