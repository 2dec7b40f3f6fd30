"""How answers are changed: which routes have rules, and what they do to header lines."""

from __future__ import annotations

import pytest

from gateway.domain.answer_rules import AnswerRules, answer_rules
from gateway.domain.cors import Cors, CorsRules
from gateway.domain.header_edits import EditRules, HeaderEdits
from gateway.domain.route import Route
from gateway.domain.routes import PING
from gateway.routing import NO_ROUTE

OWN, SHARED = Cors(("https://own.test",)), Cors(("https://shared.test",))
ROUTE = Route("r", "GET", (), True, "api")


@pytest.mark.parametrize(
    ("route", "default", "expected"),
    [
        (ROUTE, None, None),
        # The loader gives routes the policy's rules, so this one has `cors: false`.
        (ROUTE, SHARED, None),
        (Route("r", "GET", (), True, "api", cors=OWN), SHARED, OWN),
        (NO_ROUTE, SHARED, SHARED),
        (NO_ROUTE, None, None),
        (PING, SHARED, SHARED),
    ],
)
def test_whose_rules_apply(route: Route, default: Cors | None, expected: Cors | None) -> None:
    """The policy's are for requests without a route, and for the gateway's own paths."""
    rules = answer_rules(route, default)
    cors = None if rules is None else rules.cors
    assert (None if cors is None else cors.cors) == expected


def test_lines_are_replaced() -> None:
    """The upstream's Access-Control-* go, Vary is merged; without an allowed origin as well."""
    rules = AnswerRules(CorsRules(OWN))
    lines = b"Access-Control-Allow-Origin: *\r\nVary: Accept\r\nA: b\r\n"
    assert rules.applied(lines, "", {}) == b"A: b\r\nVary: Accept, Origin\r\n"
    allowed = rules.applied(lines, "https://own.test", {})
    assert allowed.startswith(b"A: b\r\nVary: Accept, Origin\r\nAccess-Control-Allow-Origin: https")


def test_edits_come_before_cors() -> None:
    """Vary of both is one line; on the gateway's own answers its own fields stay."""
    edits = EditRules(HeaderEdits(set=(("Vary", "Accept"), ("Content-Type", "x/y")), remove=("A",)))
    rules = AnswerRules(CorsRules(OWN), edits)
    assert rules.applied(b"A: b\r\nVary: B\r\n", "", {}) == (
        b"Content-Type: x/y\r\nVary: Accept, Origin\r\n"
    )
    assert rules.applied(b"", "", {}, is_own=True) == b"Vary: Accept, Origin\r\n"


def test_fixed_lines_are_added() -> None:
    """A preflight's lines are known before its answer."""
    assert AnswerRules(fixed=b"A: b\r\n").applied(b"", "https://x.test", {}) == b"A: b\r\n"
