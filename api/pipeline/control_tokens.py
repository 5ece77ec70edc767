"""Keeping user text apart from control tokens.

A chat template writes control tokens such as ``<|im_end|>`` as plain text between the users' strings, so a user who
types one would forge the end of a turn. Where that can happen the strings are marked before the template sees them
(`ControlTokens.mark`), and the rendered text is encoded by a second tokenizer that knows every control token only under
a secret name: the template's own ones are given that name, the users' ones stay the text they are.
"""

import re
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile

from tokenizers import AddedToken, Tokenizer

NONCHARACTERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))  # never assigned, and legal in JSON


class TooManyNoncharactersError(ValueError):
    """The strings use up the code points that could mark them."""


class ForgedControlTokenError(ValueError):
    """This vocabulary makes a control token out of plain text; refused rather than let through."""


class Markers:
    """Two characters that occur in none of the strings: `start` + literal + `end`, or `end` alone as a break."""

    def __init__(self, strings: Iterable[str]) -> None:
        present = set().union(*(set(NONCHARACTERS).intersection(text) for text in strings))
        free = [character for character in NONCHARACTERS if character not in present]
        if len(free) < 2:
            raise TooManyNoncharactersError("the text holds too many different noncharacters")
        self.start, self.end = free[:2]


class ControlTokens:
    """The control tokens of one tokenizer: `literals` is their text."""

    def __init__(self, tokenizer: Tokenizer, literals: Iterable[str]) -> None:
        self._literals = frozenset(literals)
        self._longest = max(map(len, self._literals), default=0)
        self._heads = {literal[i:] for literal in self._literals for i in range(1, len(literal))}
        self._tails = {literal[:i] for literal in self._literals for i in range(1, len(literal))}
        self._any_literal = longest_of(self._literals)
        self._find_literal = re.compile(self._any_literal)
        self._secret = secrets.token_hex(16)
        self._blind = Tokenizer(tokenizer.model)  # shares the model's memory
        self._real_ids = self._copy_settings(tokenizer)
        unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
        ids = {tokenizer.token_to_id(literal) for literal in self._literals}
        self._forbidden = ids - {unknown} - self._real_ids.keys()  # the model's own words, made from plain text

    def _copy_settings(self, tokenizer: Tokenizer) -> dict[int, int]:
        """Gives the blind tokenizer everything but the control tokens' names; the real id of each of its added ids."""
        if tokenizer.normalizer is not None:
            self._blind.normalizer = tokenizer.normalizer
        if tokenizer.pre_tokenizer is not None:
            self._blind.pre_tokenizer = tokenizer.pre_tokenizer
        real_ids: dict[int, int] = {}
        for real_id, token in sorted(tokenizer.get_added_tokens_decoder().items()):
            name = self._secret_name(token.content) if token.content in self._literals else token.content
            self._blind.add_tokens([_renamed(token, name)])
            blind_id = self._blind.token_to_id(name)
            assert blind_id is not None, "it was added just now"
            real_ids[blind_id] = real_id
        return real_ids

    def _secret_name(self, literal: str) -> str:
        return f"{NONCHARACTERS[-1]}{self._secret}{literal}{self._secret}{NONCHARACTERS[-1]}"

    def can_forge(self, text: str) -> bool:
        """Whether `text` holds a control token, or a piece that could become one beside what the template writes."""
        return self._find_literal.search(text) is not None or any(self._open_ends(text.strip()))

    def _open_ends(self, stripped: str) -> tuple[bool, bool]:
        """Whether the beginning may be the rest of a control token, and the end the beginning of one."""
        if len(stripped) < self._longest and any(stripped in literal for literal in self._literals if stripped):
            return True, True
        sizes = range(1, min(self._longest, len(stripped) + 1))
        is_open_before = any(stripped[:size] in self._heads for size in sizes)
        return is_open_before, any(stripped[-size:] in self._tails for size in sizes)

    def mark(self, text: str, markers: Markers) -> str:
        """`text` with its control tokens marked. White space stays outermost, since templates trim it."""
        stripped = text.strip()
        before, _, after = text.partition(stripped) if stripped else (text, "", "")
        is_open_before, is_open_after = self._open_ends(stripped)
        marked = self._find_literal.sub(f"{markers.start}\\g<0>{markers.end}", stripped)
        return before + markers.end * is_open_before + marked + markers.end * is_open_after + after

    def encode_marked(self, marked: str, plain: str, markers: Markers) -> list[int]:
        """Token ids of a conversation rendered twice, from marked strings and from the strings as they are.

        Raises ForgedControlTokenError.
        """
        named = self._name_templates_tokens(marked, plain, markers)
        ids = self._blind.encode_batch_fast([named], add_special_tokens=False)[0].ids
        if not self._forbidden.isdisjoint(ids):
            raise ForgedControlTokenError("the text holds a control token that this vocabulary cannot write as text")
        return [self._real_ids.get(token_id, token_id) for token_id in ids]

    def _name_templates_tokens(self, marked: str, plain: str, markers: Markers) -> str:
        """The rendered text with the template's control tokens under their secret names.

        Markers may keep a template from trimming white space beside a token it splits a string at. So the text is
        taken from the plain rendering, if the two differ by no more than that, and from the marked one otherwise.
        """
        pattern = _marked_pattern(self._any_literal, markers.start, markers.end)
        literals = [part for part in pattern.finditer(marked) if part.lastgroup]
        unmarked = marked.replace(markers.start, "").replace(markers.end, "")
        are_same_tokens = [part["users"] or part["templates"] for part in literals] == self._find_literal.findall(plain)
        if not are_same_tokens or "".join(unmarked.split()) != "".join(plain.split()):
            return pattern.sub(self._name_part, marked)
        whose = iter(literals)
        return self._find_literal.sub(lambda _: self._name_part(next(whose)), plain)

    def _name_part(self, part: re.Match[str]) -> str:
        if part["users"]:
            return part["users"]
        return self._secret_name(part["templates"]) if part["templates"] else ""


def longest_of(words: Iterable[str]) -> str:
    """A regular expression for the longest of `words` at a place, factored by their beginnings: vocabularies hold
    thousands of control tokens, and a plain alternation would try one after the other."""
    groups: dict[str, list[str]] = {}
    for word in sorted(set(words) - {""}):
        groups.setdefault(word[0], []).append(word)
    return "|".join(map(_one_beginning, groups.values())) or "(?!)"


def _one_beginning(group: Sequence[str]) -> str:
    """`group` is sorted, so what its first and its last word share, all share."""
    pairs = zip(group[0], group[-1], strict=False)
    beginning = "".join(first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    rests = [word[len(beginning) :] for word in group]
    if not any(rests):
        return re.escape(beginning)
    return f"{re.escape(beginning)}(?:{longest_of(rests)}){'?' if '' in rests else ''}"


@lru_cache(maxsize=16)
def _marked_pattern(any_literal: str, start: str, end: str) -> re.Pattern[str]:
    return re.compile(f"{start}(?P<users>{any_literal}){end}|(?P<templates>{any_literal})|[{start}{end}]")


def _renamed(token: AddedToken, name: str) -> AddedToken:
    return AddedToken(
        name,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )
