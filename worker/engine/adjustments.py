"""What a job asks to change in the model's logits before a token is chosen: penalties, biases, banned tokens.

In this order: repetition, then frequency and presence, then bias, then bans. Only the tokens concerned are touched.
"""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch

from worker.engine.token_history import TokenHistory
from worker.protocol.job import SamplingParams

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
NO_IDS: Ids = np.empty(0, np.int64)
NO_COUNTS: Floats = np.empty(0, np.float32)


class Adjustment:
    """What one sequence changes in its rows; it grows with the answer."""

    def __init__(self, sampling: SamplingParams, prompt: Sequence[int], end_token_ids: Collection[int]) -> None:
        self.sampling = sampling
        repeats = sampling.repetition_penalty != 1
        is_penalized = repeats or sampling.frequency_penalty != 0 or sampling.presence_penalty != 0
        self._history = TokenHistory(prompt if repeats else ()) if is_penalized else None
        self.bias_ids: Ids = np.array([token_id for token_id, _ in sampling.logit_bias], np.int64)
        self.bias: Floats = np.array([value for _, value in sampling.logit_bias], np.float32)
        self._end_token_ids: Ids = np.array(sorted(end_token_ids), np.int64)

    @staticmethod
    def is_wanted(sampling: SamplingParams) -> bool:
        penalties = (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty)
        return penalties != (1, 0, 0) or bool(sampling.logit_bias) or sampling.min_tokens > 0

    @property
    def seen_ids(self) -> Ids:
        return NO_IDS if self._history is None else self._history.ids

    @property
    def seen_counts(self) -> Floats:
        return NO_COUNTS if self._history is None else self._history.counts

    def banned_ids(self, position: int) -> Ids:
        """Tokens that may not be drawn at this place of the answer. The model may lack some of them."""
        return self._end_token_ids if position < self.sampling.min_tokens else NO_IDS

    def add(self, token_id: int) -> None:
        """The answer has grown by this token."""
        if self._history is not None:
            self._history.add(token_id)


def adjust(logits: torch.Tensor, adjustments: Sequence[Adjustment], positions: Sequence[int]) -> None:
    """Changes float32 `logits` [R, V] in place, all rows at once; `positions` are those of the tokens to draw.

    Raises ValueError for a token outside 0 to V - 1.
    """
    _penalize(logits, adjustments)
    flat = logits.view(-1)
    places = _places(logits, [each.bias_ids for each in adjustments])
    if len(places):
        flat[_tensor(places, logits)] += _tensor(np.concatenate([each.bias for each in adjustments]), logits)
    banned = [each.banned_ids(position) for each, position in zip(adjustments, positions, strict=True)]
    places = _places(logits, [ids[ids < logits.shape[1]] for ids in banned])
    if len(places):
        flat[_tensor(places, logits)] = -torch.inf


def _penalize(logits: torch.Tensor, adjustments: Sequence[Adjustment]) -> None:
    seen = [each.seen_ids for each in adjustments]
    places = _places(logits, seen)
    if not len(places):
        return
    sizes = [len(ids) for ids in seen]
    counts = np.concatenate([each.seen_counts for each in adjustments])
    samplings = [each.sampling for each in adjustments]
    repetition = np.repeat(np.array([each.repetition_penalty for each in samplings], np.float32), sizes)
    taken = np.repeat([each.frequency_penalty for each in samplings], sizes) * counts
    taken += np.repeat([each.presence_penalty for each in samplings], sizes) * (counts > 0)
    flat, index, factor = logits.view(-1), _tensor(places, logits), _tensor(repetition, logits)
    before = flat[index]
    after = torch.where(before > 0, before / factor, before * factor)
    flat[index] = after - _tensor(taken.astype(np.float32), logits)


def _places(logits: torch.Tensor, ids_of_rows: Sequence[Ids]) -> Ids:
    """Places in the flattened logits. A token outside the vocabulary would hit another row."""
    vocab_size = logits.shape[1]
    ids = np.concatenate(ids_of_rows)
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(f"a token outside 0 to {vocab_size - 1} cannot be adjusted")
    rows = np.repeat(np.arange(len(ids_of_rows)), [len(each) for each in ids_of_rows])
    places: Ids = rows * vocab_size + ids
    return places


def _tensor(array: Ids | Floats, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array).to(like.device)
