"""traceparent and tracestate, by the rules and examples of W3C Trace Context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.headers import HeaderRules
from gateway.http1.field_parser import FieldParser
from gateway.http1.head import Fields
from gateway.http1.trace_context import TraceParent, read_trace_context, trace_lines
from tests.kit.keys import make_key

TRACE, SPAN = b"0af7651916cd43dd8448eb211c80319c", b"b7ad6b7169203331"
VALID = b"00-%b-%b-01" % (TRACE, SPAN)
KEY = make_key(lambda below: 7 % below)[0].encode()


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (VALID, True),
        (b"00-%b-%b-00" % (TRACE, SPAN), False),
        (b"00-%b-%b-fe" % (TRACE, SPAN), False),
        (b"00-%b-%b-ff" % (TRACE, SPAN), True),
        (b"cc-%b-%b-01-what-the-future-will-be" % (TRACE, SPAN), True),
        (b"cc-%b-%b-01" % (TRACE, SPAN), True),
    ],
)
def test_valid_values(value: bytes, sampled: bool) -> None:
    """Of the flags only the lowest bit counts; later versions may have more at the end."""
    expected = TraceParent(int(TRACE, 16), int(SPAN, 16), sampled)
    assert read_trace_context([value], []) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"00", VALID[:-1], VALID + b"0", VALID + b"-", VALID + b"-more", b" " + VALID),
        *(b"ff" + VALID[2:], b"0" + VALID[1:].upper(), b"cc-%b-%b-01." % (TRACE, SPAN)),
        *(b"00-%032x-%b-01" % (0, SPAN), b"00-%b-%016x-01" % (TRACE, 0)),
        *(VALID.replace(b"0af", b"0ag"), VALID.replace(b"-", b"_"), b"00-" + b"1" * 30_000),
    ],
)
def test_invalid_values(value: bytes) -> None:
    """A value that is not valid is as if there were none, with its tracestate."""
    assert read_trace_context([value], [b"a=1"]) is None


def test_two_values_are_none() -> None:
    """Even if they are the same."""
    assert read_trace_context([VALID, VALID], []) is None


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([b"a=1"], b"a=1"),
        ([b"a=1,b=2", b"c=3"], b"a=1,b=2,c=3"),
        ([b"a=1 , \tb=2,,"], b"a=1 , \tb=2,,"),
        ([b"fw529a3039@dt=Ff AA", b""], b"fw529a3039@dt=Ff AA"),
        ([b",".join(b"k%d=v" % n for n in range(32))], None),
        *[([bad], b"") for bad in (b"", b" ", b",", b"a", b"A=1", b"a=1,b", b"=1", b"a=\xe4")],
        ([b"a=b=c"], b""),
        ([b",".join(b"k%d=v" % n for n in range(33))], b""),
        ([b"a=" + b"v" * 257], b""),
    ],
)
def test_state(values: list[bytes], state: bytes | None) -> None:
    """Lines are one list, unchanged; one bad member spoils it, but not the traceparent."""
    parent = read_trace_context([VALID], values)
    assert parent is not None
    assert parent.state == (values[0] if state is None else state)


@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    st.sampled_from([b"", b"a=1"]),
)
def test_what_is_written_is_read(trace: int, span: int, sampled: bool, state: bytes) -> None:
    """The fields for the next hop are valid, and say the same."""
    lines = trace_lines(trace, span, sampled, state)
    fields = _parse(b"Host: x\r\n" + lines, traced=True)
    assert fields.trace == TraceParent(trace, span, sampled, state)


def _parse(block: bytes, *, traced: bool) -> Fields:
    fields = FieldParser(HeaderRules(100, traced=traced)).parse(block, 1)
    assert isinstance(fields, Fields)
    return fields


def test_a_block() -> None:
    """With traces on they are read and not forwarded; else they are forwarded and not read."""
    block = b"Host: x\r\nTraceParent: %b\r\ntracestate: a=1\r\n" % VALID
    on, off = _parse(block, traced=True), _parse(block, traced=False)
    assert b"race" not in on.forward
    assert on.trace == TraceParent(int(TRACE, 16), int(SPAN, 16), True, b"a=1")
    assert b"TraceParent: %b\r\ntracestate: a=1\r\n" % VALID in off.forward
    assert off.trace is None
    bearer = b"Authorization: Bearer x\r\n"
    assert _parse(bearer + block, traced=True).trace == on.trace


def test_what_counts_as_absent() -> None:
    """What Connection names is for this connection only; a key is passed on in no field."""
    block = b"Host: x\r\ntraceparent: %b\r\ntracestate: %b\r\n"
    assert (
        _parse(block % (VALID, b"a=1") + b"Connection: traceparent\r\n", traced=True).trace is None
    )
    for line in (b"", b"Connection: tracestate\r\n"):
        state = b"a=1" if line else b"a=" + KEY
        trace = _parse(block % (VALID, state) + line, traced=True).trace
        assert trace is not None
        assert trace.state == b""
