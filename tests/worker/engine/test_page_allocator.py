"""Pages: taken, shared, released, never twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.page_allocator import OutOfPages, PageAllocator, PageNotHeld


@pytest.mark.parametrize(("num_tokens", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_tokens_take_whole_pages(num_tokens: int, pages: int) -> None:
    assert PageAllocator(8, page_size=4).pages_for(num_tokens) == pages


def test_when_too_many_pages_are_asked_for_then_none_is_taken() -> None:
    allocator = PageAllocator(4, page_size=1)
    allocator.allocate(3)
    with pytest.raises(OutOfPages, match="2 pages asked for, 1 of 4 free"):
        allocator.allocate(2)
    assert allocator.num_free == 1


def test_a_shared_page_is_free_only_after_its_last_holder_lets_go() -> None:
    allocator = PageAllocator(2, page_size=1)
    pages = allocator.allocate(2)
    allocator.share(pages[:1])
    assert allocator.release(pages) == pages[1:]
    assert (allocator.num_free, allocator.num_held) == (1, 1)
    allocator.check_conservation([pages[:1]])
    assert allocator.release(pages[:1]) == pages[:1]
    allocator.check_conservation()


@pytest.mark.parametrize("verb", ["release", "share"])
@pytest.mark.parametrize("page", [0, -1, 4])
def test_a_page_that_nobody_holds_cannot_be_released_or_shared(verb: str, page: int) -> None:
    with pytest.raises(PageNotHeld, match=f"page {page} is held by nobody"):
        getattr(PageAllocator(4, page_size=1), verb)([page])


def test_a_double_free_is_an_error() -> None:
    allocator = PageAllocator(4, page_size=1)
    pages = allocator.allocate(1)
    allocator.release(pages)
    with pytest.raises(PageNotHeld):
        allocator.release(pages)


def test_a_page_whose_holder_is_forgotten_breaks_conservation() -> None:
    allocator = PageAllocator(4, page_size=1)
    allocator.allocate(1)
    with pytest.raises(AssertionError, match="holders know of"):
        allocator.check_conservation()


@given(st.lists(st.tuples(st.sampled_from(["allocate", "share", "release"]), st.integers(0, 5)), max_size=60))
def test_whatever_is_done_every_page_is_free_or_accounted_for(actions: list[tuple[str, int]]) -> None:
    allocator = PageAllocator(8, page_size=1)
    holdings: list[list[int]] = []
    for verb, number in actions:
        if verb == "allocate" and number <= allocator.num_free:
            holdings.append(allocator.allocate(number))
        elif verb == "share" and holdings:
            holdings.append(list(holdings[number % len(holdings)]))
            allocator.share(holdings[-1])
        elif verb == "release" and holdings:
            allocator.release(holdings.pop(number % len(holdings)))
        allocator.check_conservation(holdings)
    for pages in holdings:
        allocator.release(pages)
    assert allocator.num_free == 8
