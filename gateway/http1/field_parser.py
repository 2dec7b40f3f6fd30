"""Parses header blocks of requests, most of them from the cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.domain.headers import Handling, HeaderRules, holds_secret, may_hold_credential
from gateway.errors import Refusal
from gateway.http1.head import Fields, parse_fields, read_length, read_own_fields
from gateway.http1.own_fields import MOST_KNOWN_BYTES, Blocks, Cut, names_fields

#: Fields of a request's own that the gateway reads,
_OWN_READ: Final = (
    b"authorization",
    b"apikey",
    b"content-length",
    b"x-forwarded-for",
    b"x-request-id",
)
#: and those of traces, ids and caches, which it forwards, or reads where traces are on.
_OWN_FORWARDED: Final = (
    *(b"traceparent", b"tracestate", b"baggage", b"b3", b"uber-trace-id", b"sentry-trace"),
    *(b"x-b3-traceid", b"x-b3-spanid", b"x-b3-parentspanid", b"x-b3-sampled"),
    *(b"x-amzn-trace-id", b"x-cloud-trace-context", b"x-datadog-trace-id"),
    *(b"x-datadog-parent-id", b"x-correlation-id", b"idempotency-key"),
    *(b"if-none-match", b"if-modified-since"),
)
_BEARER = re.compile(rb"[Aa]uthorization: Bearer ([!-~]++)\r\n").match


class _Known(NamedTuple):
    """A block without the fields of a request's own. lines: how many it has"""

    fields: Fields
    lines: int


class FieldParser:
    """Parses header blocks under the rules of one policy.

    The lines without a request's own fields are cached as parsed: so those of programs that write
    traces, and of a proxy that sends the requests of many keys over one connection. The cache holds
    no keys. Own fields are forwarded after the others.
    """

    __slots__ = ("_blocks", "_cut", "_read", "_rules")

    def __init__(self, rules: HeaderRules) -> None:
        self._rules = rules
        self._blocks = Blocks[_Known]()
        handling = {name: rules.handling(name)[1] for name in _OWN_FORWARDED}
        read = [name for name, how in handling.items() if how is Handling.READ]
        self._read = frozenset((*_OWN_READ, *read))
        others = [name for name, how in handling.items() if how is Handling.FORWARDED]
        self._cut = Cut((*self._read, *(name for name in others if name not in rules.counted)))

    def parse(self, block: bytes, minor: int) -> Fields | Refusal:
        """As `parse_fields`, but for the order of fields with different names."""
        bearer, rest = _without_bearer(block)
        parts: list[bytes] = []
        known = self._blocks.known.get((rest, minor))
        if known is None:
            # Most requests with fields of their own have only a key, which is found with less.
            parts = self._cut.split(b"\r\n" + rest)
            rest = b"".join(parts[::3])[2:]
            known = self._blocks.known.get((rest, minor)) or self._add(rest, minor)
        fields = None if known is None else self._complete(known, bearer, parts)
        return parse_fields(self._rules, block, minor) if fields is None else fields

    def _add(self, rest: bytes, minor: int) -> _Known | None:
        """Cache what the lines mean.

        None: they come for the first time, own fields would change it, or there could be a key
        """
        if len(rest) > MOST_KNOWN_BYTES or not self._blocks.comes_again((rest, minor)):
            return None
        if self._cut.any(b"\n" + rest) or may_hold_credential(rest) or names_fields(rest):
            return None
        fields = parse_fields(self._rules, rest, minor)
        if isinstance(fields, Refusal):
            return None
        known = _Known(fields, rest.count(b"\n"))
        self._blocks.put((rest, minor), known)
        return known

    def _complete(self, known: _Known, bearer: bytes, parts: Sequence[bytes]) -> Fields | None:
        """The fields with a request's own; None: they must be parsed together.

        bearer: the key; b"": there is none in this form; parts: of `Cut.split`
        """
        fields, lines = known
        if lines + len(parts) // 3 + (bearer != b"") > self._rules.most:
            return None
        if len(parts) < 3:
            return _with_key(fields, bearer) if bearer else fields
        read = {b"authorization": [b"Bearer " + bearer]} if bearer else {}
        forwarded: list[bytes] = []
        for at in range(1, len(parts), 3):
            name, value = parts[at], parts[at + 1]
            lower = name.lower()
            if lower not in self._read:
                forwarded.append(b"%b: %b\r\n" % (name, value))
            elif lower in read:
                read[lower].append(value)
            else:
                read[lower] = [value]
        forward = b"".join(forwarded)
        if holds_secret(forward):
            return None
        fields = _copied(fields, fields.forward + forward)
        if b"content-length" in read:
            if fields.chunked or read_length(fields, read[b"content-length"]):
                return None
            fields.bare = False
        read_own_fields(self._rules, fields, read)
        return fields


def _without_bearer(block: bytes) -> tuple[bytes, bytes]:
    """The key in a line with a Bearer, in its usual spelling, and the other lines.

    b"": there is no such line; any other credential is a request's own field like others
    """
    at = block.find(b"uthorization: Bearer ") - 1
    if at == 0 or (at > 0 and block.startswith(b"\r\n", at - 2)):
        line = _BEARER(block, at)
        if line is not None:
            return line[1], block[:at] + block[line.end() :]
    return b"", block


def _with_key(fields: Fields, key: bytes) -> Fields:
    """A copy with this Bearer."""
    fields = _copied(fields, fields.forward)
    fields.credential = key
    fields.authorization = b"Authorization: Bearer %b\r\n" % key
    return fields


def _copied(fields: Fields, forward: bytes) -> Fields:
    """A copy of fields of a block without own ones, with other lines for the upstream."""
    return Fields(
        fields.host,
        fields.length,
        fields.chunked,
        fields.close,
        fields.keep,
        fields.expects,
        fields.websocket,
        fields.credential,
        fields.authorization,
        fields.forwarded_for,
        fields.forwarded,
        fields.request_id,
        forward,
        fields.proxied,
        fields.counted,
        fields.bare,
        fields.asked,
        fields.trace,
        fields.fault,
    )
