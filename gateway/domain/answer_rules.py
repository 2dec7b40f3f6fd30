"""How the answers to the requests of one route are changed; compiled with the request line.

It holds for every answer: those of the upstream, and the gateway's own, refusals included. What the
gateway itself adds to each (the limits, X-Request-Id, framing) comes after it, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.cors import (
    Cors,
    CorsRules,
    compiled,
    for_mcp,
    with_vary,
    without_access_control,
)
from gateway.domain.header_edits import EditRules, Values
from gateway.domain.header_edits import compiled as compiled_edits
from gateway.domain.route import Route
from gateway.domain.routes import is_own


@dataclass(frozen=True, slots=True, eq=False)
class AnswerRules:
    """What is changed.

    cors:  the fields for pages of other origins; None: none are added
    edits: what `response_headers` changes; None: nothing
    fixed: further lines: those of a preflight
    """

    cors: CorsRules | None = None
    edits: EditRules | None = None
    fixed: bytes = b""

    @property
    def has_variables(self) -> bool:
        """Do answers to equal requests differ?"""
        return self.edits is not None and self.edits.has_variables

    def applied(self, lines: bytes, origin: str, values: Values, *, is_own: bool = False) -> bytes:
        """The header lines of an answer, changed.

        lines:  the upstream's; b"" for an answer of the gateway (is_own)
        origin: the request's Origin; "": it has none
        values: of the variables, if it has any
        """
        if self.edits is not None:
            lines = self.edits.without(lines) + self.edits.added(values, is_own=is_own)
        cors = self.cors
        if cors is not None:
            lines = without_access_control(lines)
            if cors.varies:
                lines = with_vary(lines, b"Origin")
            lines += cors.lines(origin)
        return lines + self.fixed


def answer_rules(route: Route, default: Cors | None) -> AnswerRules | None:
    """The rules of a route; None: its answers stay as they are.

    default: of requests without a route of the policies: it is the policy's
    """
    cors = default if is_own(route) or not route.name else route.cors
    edits = route.response_headers
    if cors is None and edits is None:
        return None
    if cors is not None and route.mcp is not None:
        cors = for_mcp(cors)
    return AnswerRules(
        None if cors is None else compiled(cors),
        None if edits is None else compiled_edits(edits),
    )
