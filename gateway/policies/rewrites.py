"""`strip_prefix` and `rewrite` of a route: another path for the upstream."""

from __future__ import annotations

import re
from typing import Final

from gateway.domain.path_patterns import ANY, ONE
from gateway.domain.rewrites import Rewrite, rewritten, stripped
from gateway.domain.route import Route
from gateway.domain.routes import fold
from gateway.policies.fields import read_literals, read_named, read_segment, split_path
from gateway.policies.values import Fields

PREFIX_EXPECTED: Final = "a path such as /shop, with which the pattern of match begins"
TEMPLATE_EXPECTED: Final = "a path such as /v2/items/{id}, in quotes"
#: In a pattern: its normal form is another one, where the name is of another segment.
_name_after_any = re.compile(r"/\*\*/(?:\*/|\*\Z|\{)").search


def read_rewrite(given: Fields, route: Route) -> Rewrite | None:
    """The other path that a route sends; None: there is none. given: the route's settings"""
    if "strip_prefix" in given and "rewrite" in given:
        given["strip_prefix"].add_fault("strip_prefix or rewrite", "both")
        return None
    if "strip_prefix" in given:
        return given["strip_prefix"].parsed(lambda text: _strip(text, route), PREFIX_EXPECTED)
    if "rewrite" in given:
        match = str(given["match"].node.value)
        return given["rewrite"].parsed(
            lambda text: read_template(text, route, match), TEMPLATE_EXPECTED
        )
    return None


def _strip(text: str, route: Route) -> Rewrite:
    """Raises ValueError."""
    prefix = tuple(read_literals(text, PREFIX_EXPECTED))
    begin = route.segments[: len(prefix)]
    is_same = prefix == begin if route.case_sensitive else _folded(prefix) == _folded(begin)
    if not prefix or not is_same:
        raise ValueError(PREFIX_EXPECTED)
    return stripped(begin)


def _folded(segments: tuple[str, ...]) -> list[str]:
    return [fold(segment) for segment in segments]


def read_template(text: str, route: Route, match: str) -> Rewrite:
    """What `rewrite` says. match: the pattern as it is written. Raises ValueError."""
    written = split_path(text, TEMPLATE_EXPECTED)
    if written[-1:] == [ONE]:
        written[-1] = ANY
    if written.count(ANY) > 1:
        raise ValueError("one ** at most (a /* at its end is one, too)")
    if ONE in written:
        raise ValueError("a name such as {id} in place of *, in match as well")
    template = []
    for word in written:
        name = read_named(word)
        template.append(f"{{{name}}}" if name else read_segment(word))
    names = [word for word in template if word.startswith("{")]
    if len(set(names)) < len(names):
        raise ValueError("each name once")
    if names and _name_after_any(match):
        raise ValueError("a pattern of match without a * or a name right after **")
    return rewritten(text, tuple(template), route.path, route.names)
