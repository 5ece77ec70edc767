"""Trying grammars out before a job is admitted: a bad one must cost its own request an error, and nobody else time."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from tokenizers import Tokenizer

from api.pipeline.native_pool import NativePool

MAX_BUILD_S = 5.0  # one that takes longer to make would hold up the other answers that follow grammars
MAX_KNOWN = 1024


class GrammarCheck:
    """Makes a grammar just as a worker will. What became of it is remembered."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        pool: NativePool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError for a tokenizer that cannot follow grammars."""
        self._tokenizer = LLTokenizer(tokenizer.to_str(), n_vocab=vocab_size)
        self._pool = pool
        self._clock = clock
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def problem(self, grammar: str) -> str:
        """What is wrong with a grammar, as llguidance serializes it; empty if nothing is."""
        digest = hashlib.sha256(grammar.encode()).digest()
        with self._lock:
            known = self._known.get(digest)
        if known is None:
            known = self._pool.run(lambda: self._try(grammar))
            self._remember(digest, known)
        return known

    def _try(self, grammar: str) -> str:
        begin_s = self._clock()
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.is_error():
            return first_line(matcher.get_error())
        return "it is too complex" if self._clock() - begin_s > MAX_BUILD_S else ""

    def _remember(self, digest: bytes, problem: str) -> None:
        with self._lock:
            self._known[digest] = problem
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)


def first_line(text: Any) -> str:
    """Later lines show the parser's state."""
    return str(text).strip().partition("\n")[0]
