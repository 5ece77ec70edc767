"""The prefix cache: full pages found again by what they hold, so that a shared beginning is computed once.

A page's key is a hash of its tokens and of the key of the page before it, back to a root made of an isolation salt.
Equal keys mean equal tokens from the first on, under the same salt; sequences of different salts never meet.
"""

from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b

from worker.engine.page_allocator import PageAllocator

KEY_BYTES = 16  # 128 bits of a cryptographic hash: nobody can craft tokens that find another's page


def root_key(salt: str) -> bytes:
    """The key that stands before the first page of every sequence with this salt."""
    return blake2b(salt.encode(), digest_size=KEY_BYTES, person=b"headrace-root").digest()


def page_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The key of the page that holds `token_ids` and follows the page with the key `parent`."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=KEY_BYTES).digest()


class PrefixCache:
    """Counts as one holder of each page it knows. Pages that it alone holds are idle: kept until their place is needed.

    `keeps_idle` False: a page is forgotten with its last sequence, so only sequences alive together share.
    """

    def __init__(self, allocator: PageAllocator, keeps_idle: bool = True) -> None:
        self._allocator = allocator
        self._keeps_idle = keeps_idle
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def pages(self) -> Collection[int]:
        return self._key_of.keys()

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def is_idle(self, page: int) -> bool:
        return page in self._idle

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The pages of the longest run of known keys from the first on. They are not held by that."""
        pages = []
        for key in keys:
            page = self._page_of.get(key)
            if page is None:
                break
            pages.append(page)
        return pages

    def enter(self, key: bytes, page: int) -> None:
        """Makes a held page known under `key`. Where two sequences computed the same, the first one's page stays."""
        if key not in self._page_of and page not in self._key_of:
            self._allocator.share([page])
            self._page_of[key] = page
            self._key_of[page] = key

    def hold(self, pages: Iterable[int]) -> None:
        """Adds a holder to each page, found before. Raises PageNotHeld when it was reclaimed meanwhile."""
        for page in pages:
            self._allocator.share([page])
            self._idle.pop(page, None)

    def allocate(self, count: int) -> list[int]:
        """`count` pages with one holder each, free ones first, then the least recently used idle ones.

        Raises OutOfPages, and then takes none.
        """
        if count <= self._allocator.num_free + self.num_idle:
            for _ in range(count - self._allocator.num_free):
                self._forget(next(iter(self._idle)))
        return self._allocator.allocate(count)

    def release(self, pages: Iterable[int], unusable: Collection[int] = ()) -> list[int]:
        """Takes one holder from each page; those that are free now. Of the `unusable` ones none is kept."""
        freed = []
        for page in pages:
            freed += self._allocator.release([page])
            if page in self._key_of and self._allocator.num_holders(page) == 1:
                if self._keeps_idle and page not in unusable:
                    self._idle[page] = None
                else:
                    freed += self._forget(page)
        return freed

    def check(self) -> None:
        """Raises AssertionError unless keys match pages and the idle ones are those that nobody else holds."""
        assert {page: key for key, page in self._page_of.items()} == self._key_of, "keys and pages disagree"
        idle = {page for page in self._key_of if self._allocator.num_holders(page) == 1}
        assert idle == self._idle.keys(), f"idle pages {set(self._idle)}, but only the cache holds {idle}"

    def _forget(self, page: int) -> list[int]:
        self._idle.pop(page, None)
        del self._page_of[self._key_of.pop(page)]
        return self._allocator.release([page])
