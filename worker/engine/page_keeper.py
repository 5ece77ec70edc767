"""The page keeper: gives sequences their pages and takes them back.

It knows two things of a page besides its holders: what it holds (the prefix cache), and whether that is proven. A
page is suspect from the moment a step may write to it until a token was drawn from logits that saw it: then its keys
and values are finite. Suspect pages are shared while somebody holds them, but never kept, and never handed on
unscrubbed: a masked slot still takes part in the arithmetic, with weight zero, and zero times NaN is NaN.
"""

from collections.abc import Iterable
from collections.abc import Sequence as ListLike
from itertools import chain

from worker.engine.page_allocator import PageAllocator
from worker.engine.prefix_cache import PrefixCache, page_key, root_key
from worker.engine.sequence import Sequence, Span


class PageKeeper:
    """`is_caching`: pages are found again by later sequences of the same tenant. Without it, only the sequences of one
    job share, while they run."""

    def __init__(self, num_pages: int, page_size: int, is_caching: bool = True) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._is_caching = is_caching
        self._allocator = PageAllocator(num_pages, page_size)
        self._cache = PrefixCache(self._allocator, keeps_idle=is_caching)
        self.num_queried_tokens = 0  # of prompts at their first admission
        self.num_hit_tokens = 0  # of those: found
        self._suspect: set[int] = set()
        self._tainted: set[int] = set()  # suspect when they were freed

    @property
    def num_free(self) -> int:
        return self._allocator.num_free

    @property
    def num_cached(self) -> int:
        """Pages that no sequence holds, kept for what is in them."""
        return self._cache.num_idle

    @property
    def num_held(self) -> int:
        return self.num_pages - self.num_available

    @property
    def num_available(self) -> int:
        return self.num_free + self.num_cached

    def pages_for(self, num_tokens: int) -> int:
        return self._allocator.pages_for(num_tokens)

    def num_missing(self, sequence: Sequence) -> int:
        """Pages that the sequence's tokens need beyond those it has."""
        return self.pages_for(len(sequence.token_ids)) - len(sequence.pages)

    def hits(self, sequence: Sequence) -> list[int]:
        """The known pages a sequence could begin with. Its last token is left to compute: logits are needed."""
        return self._cache.find(self._keys(sequence, self._num_findable(sequence)))

    def is_available(self, page: int) -> bool:
        """Whether an allocation could take this page, found as a hit."""
        return self._cache.is_idle(page)

    def first_missing_key(self, sequence: Sequence) -> bytes | None:
        """The key of the first page the sequence would have to compute although it could be found, if there is one."""
        keys = self._keys(sequence, self._num_findable(sequence))
        num_hits = len(self._cache.find(keys))
        return keys[num_hits] if num_hits < len(keys) else None

    def keys_to_come(self, sequence: Sequence) -> ListLike[bytes]:
        """The keys of the full pages that the sequence's pending tokens will fill."""
        return self._keys(sequence, len(sequence.token_ids) // self.page_size)[
            sequence.num_computed // self.page_size :
        ]

    def admit(self, sequence: Sequence) -> None:
        """Gives a sequence without pages all it needs, beginning with what is known. Raises OutOfPages."""
        hits = self.hits(sequence)
        self._cache.hold(hits)  # first: what is held cannot be reclaimed for the rest
        sequence.pages = hits
        sequence.num_computed = len(hits) * self.page_size
        sequence.num_entered_pages = len(hits)
        sequence.num_proven_pages = 0  # a hit may be as fresh as its first holder's prefill
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = min(sequence.num_computed, sequence.num_prompt_tokens)
            self._count(sequence, sequence.num_cached_tokens)
        self.grow(sequence)

    def _count(self, sequence: Sequence, num_found: int) -> None:
        if sequence.is_first_of_prompt:  # further answers to a prompt find it whole: that says nothing of the cache
            self.num_queried_tokens += sequence.num_prompt_tokens
            self.num_hit_tokens += num_found

    def grow(self, sequence: Sequence) -> None:
        """Gives a sequence the pages it misses. Raises OutOfPages."""
        missing = self.num_missing(sequence)
        if missing:
            sequence.pages = [*sequence.pages, *self._cache.allocate(missing)]

    def give_back(self, sequence: Sequence) -> None:
        """Takes all pages from a sequence, the last first: a page without those before it cannot be found."""
        freed = self._cache.release(reversed(sequence.pages), unusable=self._suspect)
        self._tainted.update(self._suspect.intersection(freed))
        self._suspect.difference_update(freed)
        sequence.pages = []
        sequence.num_computed = 0

    def suspect(self, span: Span) -> None:
        """A step is about to write these tokens."""
        first, last = span.start // self.page_size, (span.stop - 1) // self.page_size
        self._suspect.update(span.sequence.pages[first : last + 1])

    def accept(self, span: Span) -> None:
        """A step has computed these tokens: pages that are full now can be found."""
        sequence = span.sequence
        sequence.num_computed = span.stop
        num_full = span.stop // self.page_size
        if num_full > sequence.num_entered_pages:
            keys = self._keys(sequence, num_full)
            for place in range(sequence.num_entered_pages, num_full):
                self._cache.enter(keys[place], sequence.pages[place])
            sequence.num_entered_pages = num_full

    def prove(self, sequence: Sequence) -> None:
        """A token was drawn from logits that saw everything the sequence has computed."""
        self._suspect.difference_update(sequence.pages[sequence.num_proven_pages :])
        sequence.num_proven_pages = sequence.num_computed // self.page_size

    def take_tainted(self) -> list[int]:
        """Pages to scrub before the next step computes; each is told once."""
        tainted, self._tainted = sorted(self._tainted), set()
        return tainted

    def check_conservation(self, sequences: Iterable[Sequence]) -> None:
        """Raises AssertionError unless each page is free, or held exactly by these sequences and the cache."""
        self._allocator.check_conservation(chain((each.pages for each in sequences), [self._cache.pages]))
        self._cache.check()
        assert self.num_free + self.num_cached + self.num_held == self.num_pages

    def _num_findable(self, sequence: Sequence) -> int:
        return 0 if sequence.wants_prompt_logits else (len(sequence.token_ids) - 1) // self.page_size

    def _keys(self, sequence: Sequence, count: int) -> ListLike[bytes]:
        """The keys of the first `count` pages of a sequence, all of them full."""
        keys, size = sequence.page_keys, self.page_size
        while len(keys) < count:
            parent = keys[-1] if keys else root_key(self._salt(sequence))
            keys.append(page_key(parent, sequence.token_ids[len(keys) * size : (len(keys) + 1) * size]))
        return keys[:count]

    def _salt(self, sequence: Sequence) -> str:
        return f"tenant {sequence.tenant}" if self._is_caching else f"job {sequence.job_id}"
