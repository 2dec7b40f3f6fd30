"""Another path for the upstream: without a prefix of the client's path, or made by a template.

A path is made from the segments of another one, as they are encoded there. They are those of a
canonical path (see `http1.paths`): none is empty or a dot segment, so none can appear in the
result, and what an encoded slash is part of stays one segment. A final slash stays as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gateway.domain.path_patterns import ANY, ONE, Pattern


class Rest(Enum):
    """The word for all segments that a "**" stands for."""

    REST = "**"


REST: Final = Rest.REST
#: A literal as it is sent, the index of a segment (from the end if negative), or the rest.
Word = bytes | int | Rest
#: RFC 3986, 3.3: the characters of a segment that canonical paths have as they are.
_PLAIN: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,=:@"
)


@dataclass(frozen=True, slots=True)
class PathMap:
    """Makes paths from others that all match one pattern.

    words:    of the result
    literals: the segments that a path must have to be of the pattern, by index
    before:   how many segments the pattern has, of one with a rest: before it
    after:    how many are after its rest; None: it has none
    """

    words: tuple[Word, ...]
    literals: tuple[tuple[int, bytes], ...]
    before: int
    after: int | None

    def path(self, path: bytes) -> bytes | None:
        """The result for a path without query, b"/a/b"; None: it is not of the pattern."""
        parts = path.split(b"/")[1:]
        ends_in_slash = parts[-1:] == [b""]
        if ends_in_slash:
            parts.pop()
        after = self.after
        if len(parts) != self.before if after is None else len(parts) < self.before + after:
            return None
        if any(parts[at] != literal for at, literal in self.literals):
            return None
        made: list[bytes] = []
        for word in self.words:
            if isinstance(word, bytes):
                made.append(word)
            elif isinstance(word, int):
                made.append(parts[word])
            else:
                made += parts[self.before : len(parts) - (after or 0)]
        if ends_in_slash and made:
            made.append(b"")
        return b"/" + b"/".join(made)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a route sends in place of the client's path.

    text:    as it is written: "strip_prefix /x", "rewrite /new/{id}"
    sent:    makes the upstream's path from the client's
    back:    makes the client's path from the upstream's; None: it cannot be known
    client_head, upstream_head: the literals that both paths begin with: b"/x", b""
    """

    text: str
    sent: PathMap
    back: PathMap | None
    client_head: bytes
    upstream_head: bytes


def stripped(prefix: Sequence[str]) -> Rewrite:
    """Leave out these literal segments, with which all paths of the route begin."""
    words = tuple(map(encoded, prefix))
    head = b"".join([b"/" + word for word in words])
    return Rewrite(
        f"strip_prefix {head.decode('ascii')}",
        PathMap((REST,), (), len(words), 0),
        PathMap((*words, REST), (), 0, 0),
        head,
        b"",
    )


def rewritten(text: str, template: Pattern, pattern: Pattern, names: Sequence[str]) -> Rewrite:
    """Make paths of a pattern by a template. Raises ValueError: what the template should have.

    template: its words: a literal, decoded, "{id}", or "**"
    pattern:  of the route, with "**" for a rest; names: of its segments: ("", "id")
    """
    named = [f"{{{name}}}" if name else "" for name in names]
    source = [
        named[at] if at < len(named) and named[at] and word == ONE else word
        for at, word in enumerate(pattern)
    ]
    for word in template:
        if (word == ANY or _is_name(word)) and word not in source:
            raise ValueError(f"what the pattern of match has, unlike {word}")
    sent = _path_map(source, template)
    if sent is None:
        raise ValueError("a pattern with one ** at most, for ** or a name after it")
    # Routes match in any letter case, so a client's path need not have these literals.
    sent = replace(sent, literals=())
    back = _path_map(template, source)
    return Rewrite(f"rewrite {text}", sent, back, _head(source), _head(template))


def encoded(segment: str) -> bytes:
    """A segment as canonical paths have it."""
    return b"".join(
        [bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in segment.encode("utf-8")]
    )


def _is_name(word: str) -> bool:
    return word.startswith("{")


def _is_literal(word: str) -> bool:
    return word not in (ONE, ANY) and not _is_name(word)


def _path_map(source: Sequence[str], result: Sequence[str]) -> PathMap | None:
    """Makes paths of one list of words from those of another; None: a word has no one value."""
    gaps = [at for at, word in enumerate(source) if word == ANY]
    first, last = (gaps[0], gaps[-1]) if gaps else (len(source), len(source))
    #: The words whose place is the same in every path, and that place.
    fixed = [(word, at) for at, word in enumerate(source[:first])]
    fixed += [(source[at], at) for at in range(last + 1 - len(source), 0)]
    places = {word: at for word, at in fixed if _is_name(word)}
    words: list[Word] = []
    for word in result:
        if word == ANY and len(gaps) == 1:
            words.append(REST)
        elif word in (ONE, ANY) or (_is_name(word) and word not in places):
            return None
        else:
            words.append(places[word] if _is_name(word) else encoded(word))
    literals = tuple((at, encoded(word)) for word, at in fixed if _is_literal(word))
    return PathMap(tuple(words), literals, first, len(source) - last - 1 if gaps else None)


def _head(words: Sequence[str]) -> bytes:
    """The literals at the beginning of a pattern, as a path: b"/a/b" of /a/b/{id}; b"": none."""
    head = b""
    for word in words:
        if not _is_literal(word):
            break
        head += b"/" + encoded(word)
    return head
