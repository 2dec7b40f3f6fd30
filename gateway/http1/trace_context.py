"""Reads and writes the fields `traceparent` and `tracestate` of W3C Trace Context, level 1.

A traceparent that is not valid is as if there were none, and so is a tracestate without a valid
traceparent (3.3.1: a receiver "MUST NOT use" it).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: 3.2.2: version, trace-id, parent-id and trace-flags, in lower case. Version ff is invalid; a
#: higher one than 00 may have more after another "-".
_PARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*+)?"
).fullmatch
#: 3.3.1: a key and a value; a list has at most 32 of them.
_MEMBER = re.compile(
    rb"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
).fullmatch
MOST_MEMBERS: Final = 32
_SAMPLED: Final = 0x01


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The span of the client that sent a request.

    trace_id, span_id: not 0
    sampled: the client records its span
    state:   the value of tracestate; b"": there is none
    """

    trace_id: int
    span_id: int
    sampled: bool
    state: bytes = b""


def read_trace_context(parents: Sequence[bytes], states: Sequence[bytes]) -> TraceParent | None:
    """The values of all lines of the two fields; None: there is no valid traceparent."""
    match = _PARENT(parents[0]) if len(parents) == 1 else None
    if match is None or (match[1] == b"00" and match[5] is not None):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    if not (trace_id and span_id):
        return None
    return TraceParent(trace_id, span_id, bool(int(match[4], 16) & _SAMPLED), _state(states))


def _state(values: Sequence[bytes]) -> bytes:
    """The lines as one list; b"" if it is not valid: 3.3.1 wants it discarded as a whole."""
    joined = b",".join(filter(None, values))
    members = list(filter(None, [member.strip(b" \t") for member in joined.split(b",")]))
    if len(members) > MOST_MEMBERS or not all(map(_MEMBER, members)):
        return b""
    return joined if members else b""


def trace_id_in(lines: bytes) -> bytes:
    """The trace id in what `trace_lines` has made, in hexadecimal."""
    return lines[16:48]


def trace_lines(trace_id: int, span_id: int, sampled: bool, state: bytes) -> bytes:
    """The fields for the next hop, each with its CRLF."""
    parent = b"traceparent: 00-%032x-%016x-%02x\r\n" % (trace_id, span_id, sampled)
    return parent + b"tracestate: %b\r\n" % state if state else parent
