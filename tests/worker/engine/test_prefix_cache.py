"""The prefix cache and the page keeper: what is found again, by whom, how long it is kept, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.engine.doubles import make_job
from worker.engine.page_allocator import OutOfPages, PageAllocator, PageNotHeld
from worker.engine.page_keeper import PageKeeper
from worker.engine.prefix_cache import PrefixCache, page_key, root_key
from worker.engine.sequence import Sequence, Span


def filled_cache(num_pages: int, count: int) -> tuple[PageAllocator, PrefixCache, list[bytes]]:
    """A cache with a chain of `count` idle pages, released from the last to the first."""
    allocator = PageAllocator(num_pages, page_size=4)
    cache = PrefixCache(allocator)
    keys = [root_key("salt")]
    pages = cache.allocate(count)
    for page in pages:
        keys.append(page_key(keys[-1], [1, 2, 3, 4]))
        cache.enter(keys[-1], page)
    cache.release(reversed(pages))
    return allocator, cache, keys[1:]


def test_a_key_tells_tokens_order_parents_and_salts_apart() -> None:
    root = root_key("a")
    base = page_key(root, [1, 2])
    others = [
        page_key(root, [2, 1]),
        page_key(root, [1, 2, 0]),
        page_key(base, [1, 2]),
        page_key(root_key("b"), [1, 2]),
        page_key(root, [1, 2 + 2**32]),
    ]
    assert len({base, *others, root}) == 7
    assert page_key(root_key("a"), (1, 2)) == base


def test_pages_are_found_up_to_the_first_that_is_not_known() -> None:
    _, cache, keys = filled_cache(8, 3)
    assert cache.find(keys) == [0, 1, 2]
    assert cache.find([keys[0], b"unknown", keys[2]]) == [0]
    assert cache.find([b"unknown", *keys]) == []


def test_an_idle_page_is_kept_until_its_place_is_needed_and_the_end_of_a_chain_goes_first() -> None:
    allocator, cache, keys = filled_cache(4, 3)
    assert (allocator.num_free, cache.num_idle) == (1, 3)
    assert sorted(cache.allocate(2)) == [2, 3]
    assert cache.find(keys) == [0, 1]
    cache.check()


def test_a_page_used_again_is_reclaimed_after_one_that_was_not() -> None:
    _, cache, keys = filled_cache(2, 2)
    cache.hold([0, 1])
    cache.release([0])
    cache.release([1])
    assert cache.allocate(1) == [0]
    assert cache.find(keys[1:]) == [1]


def test_a_held_page_is_never_reclaimed() -> None:
    _, cache, keys = filled_cache(3, 3)
    cache.hold(cache.find(keys[:2]))
    with pytest.raises(OutOfPages, match="2 pages asked for"):
        cache.allocate(2)
    assert cache.num_idle == 1  # nothing was thrown away for an allocation that failed
    assert cache.allocate(1) == [2]
    cache.check()


def test_a_page_reclaimed_meanwhile_cannot_be_held() -> None:
    _, cache, keys = filled_cache(1, 1)
    found = cache.find(keys)
    cache.release(cache.allocate(1))
    with pytest.raises(PageNotHeld):
        cache.hold(found)


def test_of_two_pages_with_the_same_contents_the_first_is_known() -> None:
    allocator = PageAllocator(2, 4)
    cache = PrefixCache(allocator)
    first, second = cache.allocate(2)
    for page in (first, second):
        cache.enter(b"key", page)
    assert cache.find([b"key"]) == [first]
    assert cache.release([second, first]) == [second]
    assert (allocator.num_free, cache.num_idle) == (1, 1)


def test_what_must_not_be_kept_is_forgotten_with_its_last_holder() -> None:
    allocator, cache, keys = filled_cache(4, 2)
    cache.hold([0, 1])
    cache.hold([0])
    assert cache.release([1, 0], unusable={0, 1}) == [1]
    assert cache.find(keys) == [0]  # somebody still holds it
    assert cache.release([0], unusable={0}) == [0]
    allocator.check_conservation()


PAGE = 4


class Room:
    """A page keeper, and sequences computed in it."""

    def __init__(self, num_pages: int = 8, is_caching: bool = True) -> None:
        self.keeper = PageKeeper(num_pages, PAGE, is_caching)
        self.held: list[Sequence] = []

    def admit(self, prompt: list[int], **job_fields: object) -> Sequence:
        sequence = Sequence(make_job(prompt, job_fields=job_fields), 0, len(self.held), 100)
        self.keeper.admit(sequence)
        self.held.append(sequence)
        return sequence

    def compute(self, sequence: Sequence, stop: int | None = None) -> None:
        span = Span(sequence, sequence.num_computed, stop or len(sequence.token_ids))
        self.keeper.suspect(span)
        self.keeper.accept(span)
        if stop is None:
            self.keeper.prove(sequence)

    def give_back(self, sequence: Sequence) -> None:
        self.keeper.give_back(sequence)
        self.held.remove(sequence)
        self.keeper.check_conservation(self.held)


def test_a_later_prompt_begins_with_the_pages_of_an_earlier_one() -> None:
    room = Room()
    first = room.admit(list(range(10)))
    pages = first.pages
    room.compute(first)
    room.give_back(first)
    assert (room.keeper.num_free, room.keeper.num_cached, room.keeper.num_held) == (6, 2, 0)
    second = room.admit([*range(9), 77, 78])
    assert second.pages[:2] == pages[:2]
    assert (second.num_computed, second.num_cached_tokens) == (8, 8)
    assert (room.keeper.num_free, room.keeper.num_cached, room.keeper.num_held) == (5, 0, 3)


def test_at_least_the_last_token_is_computed() -> None:
    room = Room()
    room.compute(room.admit(list(range(8))))
    assert room.admit(list(range(8))).num_computed == 4
    assert room.admit(list(range(9))).num_computed == 8


def test_tokens_that_are_not_computed_are_not_found() -> None:
    room = Room()
    first = room.admit(list(range(8)))
    assert room.admit(list(range(9))).num_computed == 0
    room.compute(first, stop=6)
    assert room.admit(list(range(9))).num_computed == 4


def test_another_tenant_finds_nothing() -> None:
    room = Room()
    room.compute(room.admit(list(range(8)), tenant="one"))
    assert room.admit(list(range(9)), tenant="two").num_computed == 0
    assert room.admit(list(range(9)), tenant="one").num_computed == 8


def test_without_the_cache_only_one_job_shares_and_nothing_is_kept() -> None:
    room = Room(num_pages=12, is_caching=False)
    first = room.admit(list(range(9)), id="job")
    room.compute(first)
    assert room.admit(list(range(9)), id="other").num_computed == 0
    again = room.admit(list(range(9)), id="job")
    assert again.pages[:2] == first.pages[:2]
    room.give_back(first)
    room.give_back(again)
    assert room.keeper.num_cached == 0
    assert room.admit(list(range(9)), id="job").num_computed == 0


def test_cached_tokens_are_counted_once_and_only_those_of_the_prompt() -> None:
    room = Room()
    first = room.admit(list(range(6)))
    room.compute(first)
    first.append([90, 91, 92])
    room.compute(first)
    room.keeper.give_back(first)
    room.keeper.admit(first)
    assert (first.num_computed, first.num_cached_tokens) == (8, 0)  # its own tokens, when it comes back
    resumed = Sequence(make_job(list(range(6))), 0, 9, 100)
    resumed.append([90, 91, 92, 93])
    room.keeper.admit(resumed)
    assert (resumed.num_computed, resumed.num_cached_tokens) == (8, 6)


def test_what_was_written_but_never_proven_is_not_kept_and_has_to_be_scrubbed() -> None:
    room = Room()
    sequence = room.admit(list(range(12)))
    room.compute(sequence, stop=9)
    pages = sequence.pages
    room.give_back(sequence)
    assert (room.keeper.num_free, room.keeper.num_cached) == (8, 0)
    assert room.keeper.take_tainted() == sorted(pages)
    assert room.keeper.take_tainted() == []


def test_a_step_that_failed_taints_the_page_it_wrote_and_no_other() -> None:
    room = Room()
    sequence = room.admit(list(range(9)))
    room.compute(sequence)
    sequence.append([50])
    room.keeper.suspect(Span(sequence, 9, 10))
    last = sequence.pages[-1]
    room.give_back(sequence)
    assert room.keeper.take_tainted() == [last]
    assert room.keeper.num_cached == 2


def test_a_follower_proves_what_it_shares_with_a_leader_that_went_away() -> None:
    room = Room()
    leader = room.admit(list(range(20)))
    room.compute(leader, stop=9)
    follower = room.admit(list(range(9)))
    shared = follower.pages[:2]
    room.give_back(leader)
    assert set(room.keeper.take_tainted()).isdisjoint(shared)
    room.compute(follower)
    room.give_back(follower)
    assert room.admit(list(range(9))).pages[:2] == shared


def test_pages_found_proven_survive_a_sequence_that_is_cancelled_in_its_prefill() -> None:
    room = Room()
    first = room.admit(list(range(9)))
    room.compute(first)
    room.give_back(first)
    second = room.admit([*range(9), 70, 71, 72])
    room.compute(second, stop=10)
    room.give_back(second)
    assert room.admit(list(range(9))).num_computed == 8


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=30))
def test_however_prompts_come_and_go_a_hit_is_exactly_a_common_beginning(script: list[tuple[int, int]]) -> None:
    """With room for all of them, what one computed the next finds: whole pages, but for the last token's."""
    room = Room(num_pages=400)
    seen: list[list[int]] = []
    for text, length in script:
        prompt = [*[7] * 6, *[text] * 14][:length]
        common = max((_common(prompt, other) // PAGE * PAGE for other in seen), default=0)
        sequence = room.admit(prompt)
        assert sequence.num_computed == min(common, (length - 1) // PAGE * PAGE)
        room.compute(sequence)
        seen.append(prompt)
        if length % 2:
            room.give_back(sequence)


def _common(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
