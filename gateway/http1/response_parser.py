"""Parses response heads of upstreams, most of them from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.domain.headers import OURS_IN_ANSWERS
from gateway.http1.own_fields import MOST_KNOWN_BYTES, Blocks, Cut, names_fields
from gateway.http1.response import MOST_FIELDS, ResponseHead, is_length, parse_response_head

#: Not Date, which is the same for a second.
_OWN_FORWARDED: Final = (
    *(b"etag", b"last-modified", b"expires", b"age", b"server-timing"),
    *(b"request-id", b"x-correlation-id", b"x-trace-id", b"traceparent", b"traceresponse"),
    *(b"x-runtime", b"x-response-time", b"x-process-time"),
    *(b"x-amzn-requestid", b"x-amzn-trace-id", b"x-amz-request-id", b"x-amz-id-2", b"x-amz-cf-id"),
    *(b"x-cloud-trace-context", b"x-ms-request-id", b"x-github-request-id", b"cf-ray"),
)
#: Not forwarded: the gateway sets these.
_OWN_DROPPED: Final = (b"x-request-id", *OURS_IN_ANSWERS)
_CUT: Final = Cut((b"content-length", b"x-request-id", *_OWN_FORWARDED), prefixes=OURS_IN_ANSWERS)


class _Known(NamedTuple):
    """A head without the fields of an answer's own. fields: how many it has"""

    head: ResponseHead
    fields: int


class HeadParser:
    """Parses heads; those without an answer's own fields are cached as parsed.

    Own fields are forwarded after the others.
    """

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks = Blocks[_Known]()

    def parse(self, raw: bytes) -> ResponseHead | str:
        """As `parse_response_head`, but for the order of fields with different names."""
        parts = _CUT.split(raw)
        rest = b"".join(parts[::3])
        known = self._blocks.known.get(rest) or self._add(rest)
        head = None if known is None else _completed(known, parts)
        return parse_response_head(raw) if head is None else head

    def _add(self, rest: bytes) -> _Known | None:
        """Cache what a head means.

        None: it comes for the first time, or own fields would change what it means
        """
        if len(rest) > MOST_KNOWN_BYTES or not self._blocks.comes_again(rest):
            return None
        if _CUT.any(rest) or names_fields(rest):
            return None
        head = parse_response_head(rest)
        if isinstance(head, str):
            return None
        known = _Known(head, rest.count(b"\n") - 1)
        self._blocks.put(rest, known)
        return known


def _completed(known: _Known, parts: Sequence[bytes]) -> ResponseHead | None:
    """The head with an answer's own fields; None: they must be parsed together.

    parts: of `Cut.split`
    """
    head, fields = known
    if fields + len(parts) // 3 > MOST_FIELDS:
        return None
    length, forward = head.length, [head.forward]
    for at in range(1, len(parts), 3):
        name, value = parts[at], parts[at + 1]
        lower = name.lower()
        if lower == b"content-length":
            if length is not None or head.chunked or not is_length(value):
                return None
            length = int(value)
        elif not lower.startswith(_OWN_DROPPED):
            forward.append(b"%b: %b\r\n" % (name, value))
    lines = b"".join(forward)
    return ResponseHead(
        head.status, head.reason, length, head.chunked, head.keep, lines, head.dated
    )
