"""Limits, checks and decisions as values."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import gateway
from gateway.domain.limits import KINDS, Limit, Standing, governing


@pytest.mark.parametrize(
    ("shadows", "left", "waits", "expected"),
    [
        ([0, 0, 0], [5, 3, 4], {}, 1),  # admitted: the least is left
        ([0, 0, 0], [3, 5, 3], {}, 0),  # ties go to the first
        ([0, 1, 0], [5, 0, 4], {}, 2),  # a shadow limit does not govern
        ([1, 1, 1], [5, 0, 4], {}, 0),  # unless there is no other
        ([], [], {}, 0),
        ([0, 0, 0], [0, 5, 0], {0: 10, 2: 20}, 2),  # refused: the longest wait
        ([0, 0, 0], [0, 0, 0], {2: 20, 0: 20}, 0),  # in any order
        ([0, 0, 0], [0, 0, 0], {0: 2**52, 1: None, 2: None}, 1),  # never is the longest
    ],
)
def test_governing(
    shadows: Sequence[int], left: Sequence[int], waits: Mapping[int, int | None], expected: int
) -> None:
    """The limit that the client reaches first, or that makes it wait longest."""
    limits = [Limit(str(n), "rate", 9, 60_000_000, shadow=bool(s)) for n, s in enumerate(shadows)]
    assert governing(limits, [Standing(one, 0) for one in left], waits) == expected


#: Where a kind of limit may be compared by its name: where it is defined, and where policies
#: name it. `gateway/README.md` says what else a new kind needs.
NAME_KINDS = {"domain/limits.py", "policies/limits.py", "policies/schema_limits.py"}


def compares_a_kind(source: str) -> bool:
    """Does a module contain one of the names, or compare a limit's kind with anything?

    "rate" and "connections" are settings of policies, too, so they count only in a comparison.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in set(KINDS) - {"rate", "connections"}:
            return True
        if isinstance(node, ast.Compare):
            # `"rate" in given` looks for a setting.
            left = () if isinstance(node.ops[0], ast.In | ast.NotIn) else (node.left,)
            values = [
                one.value
                for side in (*left, *node.comparators)
                for one in ast.walk(side)
                if isinstance(one, ast.Constant)
            ]
            if any(value in KINDS for value in values if isinstance(value, str)):
                return True
    return False


def test_no_module_compares_a_kind_by_its_name() -> None:
    """Other modules use a kind's rules, so that a new one needs no search for comparisons."""
    package = Path(gateway.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if compares_a_kind(path.read_text())
    }
    assert found == NAME_KINDS
    for template in package.rglob("*.html"):
        assert not re.search(r"\.kind\b *[!=]=", template.read_text()), template


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('limit.kind == "rate"', True),
        ('"rate" != limit.kind', True),
        ('limit.kind in ("rate", "other")', True),
        ('kind = {"quota": 2}', True),
        ('Limit("failed_auth", "rate", 60, 60_000_000)', False),
        ('text == "a quota"', False),
        ('"rate" in given', False),
        ('limit.kind == "connections"', True),
        ('given["connections"]', False),
        ("limit.rules.calendar", False),
    ],
)
def test_a_name_is_seen(source: str, expected: bool) -> None:
    """In a comparison or, except for two of them, anywhere."""
    assert compares_a_kind(source) is expected
