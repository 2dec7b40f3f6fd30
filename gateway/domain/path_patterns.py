"""Patterns of paths as sets of paths: which paths they match, and how two of them relate.

A path is a tuple of segments: ("api", "v1", "batch"). A pattern is a tuple of words, each a literal
segment, "*" (any one segment) or "**" (any number of segments, also none). It is in normal form: of
neighbouring wildcards each "*" comes first, and then one "**" at most. So two patterns match the
same paths only if they are equal.

A pattern is represented by its samples: paths that have, in place of each wildcard, a segment that
no pattern has as a literal. A sample is matched by the fewest patterns: one that matches it matches
every path with other segments in those places. A "**" need not be tried with more segments than the
other pattern has words: that one can only match a longer run with a "**" of its own, which matches
any longer run as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from typing import Final

ONE: Final = "*"
ANY: Final = "**"
#: The segment of samples that no pattern has: one with a slash is no segment.
OTHER: Final = "/"

#: The most "**" that a pattern may have, also one at its end. A pattern has as many samples as the
#: other one has words, to the power of this.
MOST_ANY: Final = 2

Pattern = tuple[str, ...]


def lies_within(inner: Pattern, outer: Pattern) -> bool:
    """Does outer match every path that inner matches?"""
    if ANY in outer[:-1]:
        matcher = Matcher((outer,))
        return all(matcher.matching(path) for path in samples(inner, len(outer)))
    fixed = outer
    if outer[-1:] == (ANY,):
        fixed = outer[:-1]
        if len(inner) - inner.count(ANY) < len(fixed):
            return False
    elif len(inner) != len(outer) or ANY in inner:
        return False
    # Beyond the first "**" of inner, any segment may be in any place.
    certain = inner.index(ANY) if ANY in inner else len(inner)
    return all(
        theirs == ONE or (theirs == inner[place] and place < certain)
        for place, theirs in enumerate(fixed)
    )


def samples(pattern: Pattern, most: int) -> Iterator[Pattern]:
    """The samples of a pattern with up to `most` segments in place of each "**", shortest first."""
    words: list[Pattern] = [(OTHER,) if word == ONE else (word,) for word in pattern]
    places = [place for place, word in enumerate(pattern) if word == ANY]
    for counts in product(range(most + 1), repeat=len(places)):
        for place, count in zip(places, counts, strict=True):
            words[place] = (OTHER,) * count
        yield tuple(chain.from_iterable(words))


def shared(first: Pattern, second: Pattern, fold: Callable[[str], str] = str) -> Iterator[Pattern]:
    """Patterns that together match exactly what both match; nothing if they share no path.

    They may overlap, and are not in normal form. fold: literals are compared after it; the results
    have the spelling of `first`
    """
    shares = _shares(tuple(map(fold, first)), tuple(map(fold, second)))

    def below(at: int, to: int) -> Iterator[Pattern]:
        if not shares[at][to]:
            return
        if at == len(first) or to == len(second):
            yield ()  # what is left of the other is "**"
            return
        one, other = first[at], second[to]
        if one == ANY:
            # It ends here, or goes on for one more word of the other.
            kept = (ANY,) if other == ANY else ()
            yield from (kept + rest for rest in below(at + 1, to))
            yield from ((other, *rest) for rest in below(at, to + 1))
        elif other == ANY:
            yield from below(at, to + 1)
            yield from ((one, *rest) for rest in below(at + 1, to))
        else:
            word = other if one == ONE else one
            yield from ((word, *rest) for rest in below(at + 1, to + 1))

    return below(0, 0)


def _shares(first: Pattern, second: Pattern) -> list[list[bool]]:
    """Whether first[at:] and second[to:] share a path, at [at][to]."""
    table = [[False] * (len(second) + 1) for _ in range(len(first) + 1)]
    for at in range(len(first), -1, -1):
        for to in range(len(second), -1, -1):
            one = first[at] if at < len(first) else None
            other = second[to] if to < len(second) else None
            if ANY in (one, other):
                found = (one is not None and table[at + 1][to]) or (
                    other is not None and table[at][to + 1]
                )
            elif one is None or other is None:
                found = one is other
            else:
                found = (one == other or ONE in (one, other)) and table[at + 1][to + 1]
            table[at][to] = found
    return table


def normal(words: Iterable[str]) -> Pattern:
    """The normal form of a pattern: "/**/*/**/a" is "/*/**/a"."""
    result: list[str] = []
    for word in words:
        if word == ANY and result[-1:] == [ANY]:
            continue
        if word == ONE and result[-1:] == [ANY]:
            result.insert(-1, word)
        else:
            result.append(word)
    return tuple(result)


class Matcher:
    """Several patterns, matched at once: each place between their words is one bit of an integer.

    A path takes a few operations on integers for each of its segments, whatever the patterns are:
    no path is tried in several ways.

    starts: the first place of each pattern; ends: its last one
    """

    __slots__ = ("_all", "_any", "_ended", "_index", "_literals", "_one", "ends", "starts")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._any = self._one = 0
        self._literals: dict[str, int] = {}
        firsts: list[int] = []
        self.ends: list[int] = []
        place = 1
        for pattern in patterns:
            firsts.append(place)
            for word in pattern:
                if word == ANY:
                    self._any |= place
                elif word == ONE:
                    self._one |= place
                else:
                    self._literals[word] = self._literals.get(word, 0) | place
                place <<= 1
            self.ends.append(place)
            place <<= 1
        self._literals = {word: places | self._one for word, places in self._literals.items()}
        self.starts = [self._passed(first) for first in firsts]
        self._all, self._ended = sum(self.starts), sum(self.ends)
        self._index = {end: index for index, end in enumerate(self.ends)}

    def _passed(self, places: int) -> int:
        """With the places after a "**", which may match nothing."""
        return places | (places & self._any) << 1

    def matching(self, path: Iterable[str], places: int | None = None) -> list[int]:
        """The indexes of the patterns that match a path, in their order.

        places: the starts of the patterns to look at; all, if None
        """
        if places is None:
            places = self._all
        before_any, before_one, literals = self._any, self._one, self._literals
        for segment in path:
            here = literals.get(segment, before_one)
            places = (places & here) << 1 | places & before_any
            places |= (places & before_any) << 1
            if not places:
                return []
        found, ended = [], places & self._ended
        while ended:
            lowest = ended & -ended
            found.append(self._index[lowest])
            ended ^= lowest
        return found

    def sharing(self, pattern: Pattern) -> int:
        """The ends of the patterns that share a path with another pattern."""
        places = self._all
        before_word = ~(self._any | self._ended)
        for word in pattern:
            if word != ANY:
                here = before_word if word == ONE else self._literals.get(word, self._one)
                places = self._passed((places & here) << 1 | places & self._any)
                continue
            more = places
            while more:
                more = self._passed((places & before_word) << 1) & ~places
                places |= more
        return places & self._ended
