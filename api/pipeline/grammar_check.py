"""Trying grammars out before a job is admitted: a bad one must cost its own request an error, and nobody else time."""

import hashlib
import threading
from collections import OrderedDict

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from api.pipeline.grammar_trials import SLOW_S, GrammarTrials

MAX_KNOWN = 1024


class GrammarCheck:
    """Makes a grammar just as a worker will. What became of it is remembered."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, slow_s: float = SLOW_S) -> None:
        """Raises ValueError for a tokenizer that cannot follow grammars. `slow_s`: CPU time a grammar may take."""
        LLTokenizer(tokenizer.to_str(), n_vocab=vocab_size)
        self._trials = GrammarTrials(tokenizer.to_str, vocab_size, slow_s)
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def problem(self, grammar: str) -> str:
        """What is wrong with a grammar, as llguidance serializes it; empty if nothing is. Raises ApiError 503."""
        digest = hashlib.sha256(grammar.encode()).digest()
        with self._lock:
            known = self._known.get(digest)
        if known is None:
            known = self._trials.problem(grammar)
            self._remember(digest, known)
        return known

    def _remember(self, digest: bytes, problem: str) -> None:
        with self._lock:
            self._known[digest] = problem
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
