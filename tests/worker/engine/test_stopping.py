"""Stop strings: cut exactly before the match, hold back no more than needed, lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.stopping import StopMatcher


def pieces(stops: list[str], *texts: str) -> list[str]:
    matcher = StopMatcher(stops)
    return [matcher.feed(text) for text in texts] + [matcher.flush()]


@pytest.mark.parametrize(
    ("stops", "texts", "expected"),
    [
        ([], ["ab", "c"], ["ab", "c", ""]),
        ([""], ["ab", "c"], ["ab", "c", ""]),
        (["END"], ["xE", "N", "Dy", "z"], ["x", "", "", "", ""]),  # over three tokens; nothing after the match
        (["END"], ["xE", "Nx", "y"], ["x", "ENx", "y", ""]),  # a beginning that came to nothing
        (["END"], ["EEN", "D"], ["E", "", ""]),  # the beginning may start anew inside itself
        (["END"], ["abcEN"], ["abc", "EN"]),  # held back until the end, then given out
        (["ABAC"], ["ABAB", "AC"], ["AB", "", ""]),
        (["x"], ["ax", "b"], ["a", "", ""]),
        (["\n\n"], ["a\n", "b\n", "\n"], ["a", "\nb", "", ""]),
        (["語です"], ["日本", "語", "です。"], ["日本", "", "", ""]),
        (["🙂🙃"], ["a🙂", "🙂🙃b"], ["a", "🙂", ""]),
        (["abcd", "bc"], ["a", "b", "c", "d"], ["", "", "a", "", ""]),  # the match complete first wins
        (["abc", "c"], ["abc"], ["", ""]),  # complete at once: the one that began first
        (["aa"], ["aaa"], ["", ""]),
    ],
)
def test_text_passes_until_a_stop_string_is_complete(stops: list[str], texts: list[str], expected: list[str]) -> None:
    assert pieces(stops, *texts) == expected


def test_a_match_is_told() -> None:
    matcher = StopMatcher(["c", "bb"])
    matcher.feed("ab")
    assert (matcher.is_matched, matcher.matched) == (False, None)
    matcher.feed("b")
    assert (matcher.is_matched, matcher.matched) == (True, "bb")


def test_given_that_the_match_is_kept_then_the_text_ends_right_after_it() -> None:
    matcher = StopMatcher(["END", "D"], keeps_match=True)
    assert [matcher.feed(text) for text in ("xE", "ND", "y")] == ["x", "END", ""]
    assert matcher.matched == "END"


alphabet = st.text("ab", max_size=12)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(alphabet, max_size=6))
def test_token_boundaries_do_not_change_what_comes_out(stops: list[str], texts: list[str]) -> None:
    whole = "".join(texts)
    assert "".join(pieces(stops, *texts)) == "".join(pieces(stops, *whole)) == cut(whole, stops)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(alphabet, max_size=6))
def test_only_a_true_beginning_of_a_stop_string_is_held_back(stops: list[str], texts: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = seen = ""
    for text in texts:
        shown, seen = shown + matcher.feed(text), seen + text
        held = seen[len(shown) :]
        if not matcher.is_matched:
            assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def cut(text: str, stops: list[str]) -> str:
    """The text before the stop string that is complete first, character by character."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text
