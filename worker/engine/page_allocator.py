"""The page allocator: which KV pages are free, and how many sequences hold each of the others."""

from collections import Counter
from collections.abc import Iterable


class OutOfPages(RuntimeError):
    """More pages were asked for than are free."""


class PageNotHeld(RuntimeError):
    """A page was released or shared that nobody holds: a double free, or a foreign page number."""


class PageAllocator:
    """Counts the holders of `num_pages` pages, each a run of `page_size` KV slots. A page without holders is free."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._num_holders = [0] * num_pages
        self._free = list(reversed(range(num_pages)))  # a stack: a page just freed is still in the processor's cache

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_held(self) -> int:
        return self.num_pages - self.num_free

    def num_holders(self, page: int) -> int:
        return self._num_holders[page]

    def pages_for(self, num_tokens: int) -> int:
        """Pages that `num_tokens` tokens of one sequence take."""
        return -(-num_tokens // self.page_size)

    def allocate(self, count: int) -> list[int]:
        """`count` pages with one holder each. Raises OutOfPages, and then takes none."""
        if count > self.num_free:
            raise OutOfPages(f"{count} pages asked for, {self.num_free} of {self.num_pages} free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._num_holders[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Adds one holder to each page. Raises PageNotHeld for a free page."""
        for page in pages:
            self._check_held(page)
            self._num_holders[page] += 1

    def release(self, pages: Iterable[int]) -> list[int]:
        """Takes one holder from each page; those that are free now. Raises PageNotHeld on a double free."""
        freed = []
        for page in pages:
            self._check_held(page)
            self._num_holders[page] -= 1
            if self._num_holders[page] == 0:
                freed.append(page)
        self._free.extend(freed)
        return freed

    def check_conservation(self, holdings: Iterable[Iterable[int]] = ()) -> None:
        """Raises AssertionError unless `holdings`, the pages of every holder, explain every page not free.

        Without arguments: unless all pages are free.
        """
        expected = Counter(page for pages in holdings for page in pages)
        held = {page: holders for page, holders in enumerate(self._num_holders) if holders}
        assert held == dict(expected), f"pages held {held}, but the holders know of {dict(expected)}"
        assert sorted(self._free) == sorted(set(range(self.num_pages)) - held.keys()), "free list and counts disagree"

    def _check_held(self, page: int) -> None:
        if not 0 <= page < self.num_pages or self._num_holders[page] == 0:
            raise PageNotHeld(f"page {page} is held by nobody")
