"""The tokens of one sequence, counted for its penalties. Grows with the answer; nothing is counted twice."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

GROWTH = 256  # places added at once


class TokenHistory:
    """Distinct token ids with how often each was generated; ids of the prompt alone stand there with a count of 0."""

    def __init__(self, prompt: Sequence[int]) -> None:
        """`prompt`: the ids that count as seen from the start; empty where only the answer matters."""
        self._place_of = {token_id: place for place, token_id in enumerate(dict.fromkeys(prompt))}
        self._ids = np.fromiter(self._place_of, dtype=np.int64)
        self._counts = np.zeros(len(self._ids), dtype=np.float32)

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._ids[: len(self._place_of)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        return self._counts[: len(self._place_of)]

    def add(self, token_id: int) -> None:
        place = self._place_of.setdefault(token_id, len(self._place_of))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(GROWTH, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(GROWTH, np.float32)])
        self._ids[place] = token_id
        self._counts[place] += 1
