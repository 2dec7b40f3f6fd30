"""Texts that a pattern may take long for, made from the pattern itself.

Where a part of a pattern is repeated, a text can have it many times: a prefix that leads there, the
part again and again, and a suffix with which all of it fails or goes on. If there are two ways to
read what is repeated, the time grows with the square of the length, or worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from tests.growth.measure import Pump

#: Repetitions below this are bounded: their time is, too.
LEAST_REPEATED: Final = 256
#: The most forms of what is repeated, for each place where it is.
_MOST_FORMS: Final = 8
_TRIES: Final = 24
_LATIN: Final = frozenset(range(256))
_QUOTES: Final = frozenset(b"'\"")
_REPEATS: Final = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)
_SINGLE: Final = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN)
_CATEGORIES: Final = {
    code.CATEGORY_DIGIT: "0-9",
    code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_WORD: r"\w",
}


def pumps_of(pattern: re.Pattern[Any]) -> Iterator[Pump[Any]]:
    """The texts for a pattern, each once; none if nothing in it is repeated often."""
    made = _Maker(pattern)
    seen = set()
    for pump in made.pumps():
        if pump not in seen:
            seen.add(pump)
            yield pump


class _Maker:
    """Makes texts for one pattern."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._is_bytes = isinstance(pattern.pattern, bytes)
        self._flags = pattern.flags
        self._tree = list(_parser.parse(pattern.pattern, pattern.flags))
        self._random = Random(0)
        self._all = _LATIN | self._beyond(self._tree)
        self._atoms = self._find_atoms()

    def pumps(self) -> Iterator[Pump[Any]]:
        for before, item, after in self._places(self._tree, [], []):
            forms = self._forms(item)
            prefixes = dict.fromkeys([self._least(before), self._sample(before), ""])
            rest = self._least(after)
            odd = self._odd_after(after)
            suffixes = dict.fromkeys([odd, "", rest, rest + odd, rest[:-1] + odd])
            for form in forms:
                for prefix in prefixes:
                    for suffix in suffixes:
                        yield Pump(*map(self._encoded, (prefix, form, suffix)))

    def _encoded(self, text: str) -> Any:
        return text.encode("latin-1") if self._is_bytes else text

    # -- where something is repeated --------------------------------------------------------------

    def _places(
        self, nodes: Sequence[Any], before: list[Any], after: list[Any]
    ) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
        """Each repeated part, with the nodes before and after it, from the pattern's begin on."""
        for at, (kind, argument) in enumerate(nodes):
            left, right = [*before, *nodes[:at]], [*nodes[at + 1 :], *after]
            if kind in _REPEATS:
                _, most, item = argument
                if most is code.MAXREPEAT or most >= LEAST_REPEATED:
                    yield left, list(item), right
                    again = [(kind, (0, most, item)), *right]
                    yield from self._places(list(item), left, again)
                else:
                    yield from self._places(list(item), left, right)
            for inner in _within(kind, argument):
                yield from self._places(list(inner), left, right)

    # -- characters -------------------------------------------------------------------------------

    def _find_atoms(self) -> list[int]:
        """A character of each kind: two of a kind are in the same classes of the pattern."""
        classes = [self._chars(*node) for node in _singles(self._tree)]
        kinds: dict[tuple[bool, ...], int] = {}
        # Letters and visible characters first: they are easier to read in a failure.
        for char in sorted(
            self._all, key=lambda char: (not 0x21 <= char < 0x7F, char in _QUOTES, char)
        ):
            kinds.setdefault(tuple(char in each for each in classes), char)
        # First those that are in many classes: what overlaps can be read in two ways.
        return [kinds[kind] for kind in sorted(kinds, key=sum, reverse=True)]

    def _beyond(self, nodes: Sequence[Any]) -> set[int]:
        """The characters beyond 255 that are in the pattern; the first and the last of ranges."""
        found: set[int] = set()
        for kind, argument in _singles(nodes):
            for inner, value in argument if kind is code.IN else [(kind, argument)]:
                if inner in (code.LITERAL, code.NOT_LITERAL):
                    found.add(value)
                elif inner is code.RANGE:
                    found.update(value)
        return found - _LATIN

    def _chars(self, kind: Any, argument: Any) -> frozenset[int]:
        if kind is code.ANY:
            return self._all if self._flags & re.DOTALL else self._all - {0x0A}
        if kind is code.LITERAL:
            return self._cased({argument})
        if kind is code.NOT_LITERAL:
            return self._all - self._cased({argument})
        found: set[int] = set()
        is_negated = False
        for inner, value in argument:
            if inner is code.NEGATE:
                is_negated = True
            elif inner is code.LITERAL:
                found.add(value)
            elif inner is code.RANGE:
                found.update(char for char in self._all if value[0] <= char <= value[1])
            elif inner is code.CATEGORY:
                found |= self._category(value)
        cased = self._cased(found)
        return self._all - cased if is_negated else cased

    def _category(self, value: Any) -> frozenset[int]:
        for known, text in _CATEGORIES.items():
            is_other = str(value) == str(known).replace("CATEGORY_", "CATEGORY_NOT_")
            if value is known or is_other:
                flags = self._flags & re.ASCII
                match = re.compile(f"[{text}]", flags).match
                found = frozenset(char for char in self._all if match(chr(char)))
                return self._all - found if is_other else found
        # A class of a newer Python: a pattern that has it would not be searched for.
        raise AssertionError(f"found the class {value}, expected one of {list(_CATEGORIES)}")

    def _cased(self, found: set[int]) -> frozenset[int]:
        if not self._flags & re.IGNORECASE:
            return frozenset(found)
        swapped = {ord(chr(char).swapcase()) for char in found if len(chr(char).swapcase()) == 1}
        return frozenset(found) | (swapped & self._all)

    # -- texts ------------------------------------------------------------------------------------

    def _forms(self, item: list[Any]) -> list[str]:
        """What is repeated, in a few forms."""
        if len(item) == 1 and item[0][0] in _SINGLE:
            chars = self._chars(*item[0])
            found = [chr(atom) for atom in self._atoms if atom in chars]
        else:
            found = [self._least(item), *(self._sample(item) for _ in range(_TRIES))]
        forms = [form for form in dict.fromkeys(found) if form]
        return forms[:_MOST_FORMS]

    def _odd_after(self, after: list[Any]) -> str:
        """A character that cannot follow."""
        allowed = [self._chars(*node) for node in _singles(after)]
        odd = [atom for atom in self._atoms if not any(atom in each for each in allowed)]
        return chr((odd or [0x0A if self._atoms[-1] != 0x0A else 0x00])[-1])

    def _least(self, nodes: Sequence[Any]) -> str:
        """The shortest text that they match, or nearly."""
        return "".join(self._text(kind, argument, None) for kind, argument in nodes)

    def _sample(self, nodes: Sequence[Any]) -> str:
        """Another text that they match, or nearly."""
        return "".join(self._text(kind, argument, self._random) for kind, argument in nodes)

    def _text(self, kind: Any, argument: Any, random: Random | None) -> str:
        if kind in _SINGLE:
            chars = self._chars(kind, argument)
            atoms = [atom for atom in self._atoms if atom in chars] or sorted(chars)[:1]
            if not atoms:
                return chr(argument)
            return chr(atoms[0] if random is None else random.choice(atoms))
        if kind in _REPEATS:
            least, most, item = argument
            times = least if random is None else min(least + random.choice((0, 1, 1, 2)), most)
            make = self._least if random is None else self._sample
            return "".join(make(list(item)) for _ in range(times))
        inner = list(_within(kind, argument))
        if not inner or kind in (code.ASSERT, code.ASSERT_NOT):
            return ""
        chosen = inner[0] if random is None else random.choice(inner)
        return self._least(list(chosen)) if random is None else self._sample(list(chosen))


def _within(kind: Any, argument: Any) -> Iterator[Any]:
    """The sequences within a node that is no repetition and no character."""
    if kind is code.BRANCH:
        yield from argument[1]
    elif kind is code.SUBPATTERN:
        yield argument[3]
    elif kind in (code.ASSERT, code.ASSERT_NOT):
        yield argument[1]
    elif kind is code.ATOMIC_GROUP:
        yield argument
    elif kind is code.GROUPREF_EXISTS:
        yield from (each for each in argument[1:] if each is not None)


def _singles(nodes: Sequence[Any]) -> Iterator[Any]:
    """All characters and classes."""
    for kind, argument in nodes:
        if kind in _SINGLE:
            yield kind, argument
        elif kind in _REPEATS:
            yield from _singles(list(argument[2]))
        else:
            for inner in _within(kind, argument):
                yield from _singles(list(inner))
