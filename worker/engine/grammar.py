"""Grammars: which tokens may come next for an answer to match one. llguidance does the work.

The state of a grammar follows from the answer's tokens alone, so after a crash or a preemption it is there again once
they have been pushed.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import torch
from llguidance import LLMatcher, LLTokenizer

from worker.engine.draw import MASK_BITS

IDLE_WAIT_S = 0.02
MASKS_S = 0.05  # after so long a step waits for no further masks: a few grammars need ten milliseconds for each
MAX_MADE = 16  # grammars that are kept as they were made: many requests have the same


class GrammarFailed(Exception):
    """The grammar cannot be followed (further); the message says why."""


class AnswerGrammar:
    """How far one answer has come in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        """Raises GrammarFailed."""
        self.matcher = matcher
        self.last_round = 0  # of masks, in which this grammar's was computed
        self._check()

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return self.matcher.is_stopped()

    def push(self, token_id: int) -> None:
        """The answer has grown by this token. Raises GrammarFailed when the grammar does not allow it."""
        if not self.matcher.is_stopped():  # a complete grammar takes end tokens, which say nothing new
            self.matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self.matcher.is_error():
            # The other lines show the parser's state.
            raise GrammarFailed(self.matcher.get_error().partition("\n")[0] or "the grammar has failed")


MakeGrammar = Callable[[str], AnswerGrammar]


def grammar_maker(tokenizer: Any, vocab_size: int, end_token_ids: frozenset[int]) -> MakeGrammar:
    """What begins a grammar, as llguidance serializes it, for an answer of this model. Raises GrammarFailed.

    `tokenizer` is a transformers tokenizer over the tokenizers library. It is prepared when the first grammar asks.
    """

    @cache
    def prepared() -> LLTokenizer:
        try:
            source = tokenizer.backend_tokenizer.to_str()
            return LLTokenizer(source, n_vocab=vocab_size, eos_token=sorted(end_token_ids) or None)
        except (AttributeError, ValueError, TypeError) as error:
            raise GrammarFailed(f"this model's tokenizer cannot follow grammars: {error}") from error

    return lambda grammar: AnswerGrammar(LLMatcher(prepared(), grammar, log_level=0))


class GrammarRoom:
    """Makes grammars and computes masks, each on a thread of its own: both run while the engine computes.

    A large grammar takes a second to make. The masks of the others, which a step waits for, do not stand behind it.
    """

    def __init__(self, make_grammar: MakeGrammar | None, vocab_size: int) -> None:
        self._make_grammar: MakeGrammar | None = make_grammar and lru_cache(MAX_MADE)(make_grammar)
        self._num_words = -(-vocab_size // MASK_BITS)
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="grammar-maker")
        self._masker = ThreadPoolExecutor(1, thread_name_prefix="grammar-masks")
        self._coming: dict[str, Future[list[AnswerGrammar]]] = {}
        self._num_rounds = 0

    def order(self, job_id: str, grammar: str, num_choices: int) -> None:
        """Begins to make a job's grammars, one for each choice; see `made`."""
        self._coming[job_id] = self._maker.submit(self._make, grammar, num_choices)

    def forget(self, job_id: str) -> None:
        """Harmless when nothing is ordered."""
        coming = self._coming.pop(job_id, None)
        if coming is not None:
            coming.cancel()

    def made(self, is_idle: bool) -> dict[str, Future[list[AnswerGrammar]]]:
        """What is ready by now, each told once. With nothing else to do it waits a little for the first."""
        if not self._coming:  # as in nearly every step
            return {}
        wait(self._coming.values(), IDLE_WAIT_S if is_idle else 0, FIRST_COMPLETED)
        ready = {job_id: coming for job_id, coming in self._coming.items() if coming.done()}
        for job_id in ready:
            del self._coming[job_id]
        return ready

    def start_masks(self, grammars: Iterable[AnswerGrammar]) -> "Future[dict[AnswerGrammar, torch.Tensor]]":
        """int32 [words] of each, see RowParams. The grammars must not change before it is done.

        Where that takes too long for one step, only of some, of at least one: those whose last one is longest ago.
        """
        return self._masker.submit(self._masks, sorted(grammars, key=attrgetter("last_round")))

    def _make(self, grammar: str, num_choices: int) -> list[AnswerGrammar]:
        if self._make_grammar is None:
            raise GrammarFailed("this engine follows no grammars")
        made = self._make_grammar(grammar)
        return [AnswerGrammar(made.matcher.deep_copy()) for _ in range(num_choices)]

    def _masks(self, grammars: list[AnswerGrammar]) -> dict[AnswerGrammar, torch.Tensor]:
        self._num_rounds += 1
        deadline_s = time.perf_counter() + MASKS_S
        found: dict[AnswerGrammar, torch.Tensor] = {}
        masks = torch.zeros(len(grammars), self._num_words, dtype=torch.int32)
        for grammar, mask in zip(grammars, masks, strict=True):
            if found and time.perf_counter() > deadline_s:
                break
            grammar.matcher.unsafe_compute_mask_ptr(mask.data_ptr(), mask.nbytes)
            grammar.last_round = self._num_rounds
            found[grammar] = mask
        return found
