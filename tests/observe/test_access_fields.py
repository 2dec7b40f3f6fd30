"""Fields of the access log: queries without secrets, trace ids, referrers, phases."""

from __future__ import annotations

import pytest

from gateway.domain.access_log import AccessLogFormat, QueryRule
from gateway.observe.access_fields import MOST_PARAMETERS, MOST_TEXT, Entry, getters
from tests.kit.access import logged
from tests.observe.test_access_lines import line_of

KEY = "gwk_production_7h3k9m2p4q6r_" + "Ab1" * 12
TRACE = "0af7651916cd43dd8448eb211c80319c"


def value(name: str, form: AccessLogFormat | None = None, **changes: object) -> str | None:
    """A field of LINE with these changes."""
    return getters(form or AccessLogFormat())[name](
        Entry(logged(**changes), 200, 0, 12_345, None, 1.0)
    )


@pytest.mark.parametrize(
    ("rule", "query", "shown"),
    [
        ("off", "?a=1", None),
        ("names", "", None),
        ("names", "?", ""),
        ("names", "?a=1&b=2&c", "a&b&c"),
        ("keep", "?a=1&b=2&c", "a=1&b=2&c"),
        ("keep", "?token=x&TOKEN=y&%74oken=z&+token=v", None),
        ("keep", "?token", "token"),
        ("keep", f"?a={KEY}", "a=[redacted]"),
        ("keep", "?a=g%77k_production_7h3k", "a=[redacted]"),
        ("keep", "?a=g%2577k_production_7h3k", "a=[redacted]"),
        ("names", f"?{KEY}=1", "[redacted]"),
        ("keep", f"?{KEY}", "[redacted]"),
        ("keep", "?a=b=c?d", "a=b=c?d"),
        ("keep", "?a=1;token=y&b=2;c", "a=1;token=[redacted]&b=2;c"),
        ("names", "?a=1;token=y&b=2;c", "a;token&b;c"),
    ],
)
def test_queries(rule: QueryRule, query: str, shown: str | None) -> None:
    """Values of redacted parameters are not shown, however the name is written; keys never."""
    found = value("query", AccessLogFormat(query=rule), query=query)
    if "token=x" in query:
        assert found is not None
        assert [part.partition("=")[2] for part in found.split("&")] == ["[redacted]"] * 4
    else:
        assert found == shown


@pytest.mark.parametrize(
    ("rule", "url", "shown"),
    [
        ("off", "https://u:p@a.example/x?token=1#f", "https://a.example/x"),
        ("names", "https://a.example/x?token=1&b=2", "https://a.example/x?token&b"),
        ("keep", "https://a.example/?token=1&b=2", "https://a.example/?token=[redacted]&b=2"),
        ("keep", "/relative?b=2", "/relative?b=2"),
    ],
)
def test_a_referrer_is_as_private_as_a_query(rule: QueryRule, url: str, shown: str) -> None:
    """Its query has the same rule; a user and a fragment are left out."""
    form = AccessLogFormat(query=rule)
    assert value("referrer", form, forward=f"Host: a\r\nreferer: {url}\r\n") == shown


@pytest.mark.parametrize(
    ("lines", "trace"),
    [
        (f"traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n", TRACE),
        (f"Host: a\r\nTraceParent: 00-{TRACE}-b7ad6b7169203331-00\r\nX: y\r\n", TRACE),
        (f"traceparent: 01-{TRACE}-b7ad6b7169203331-01-more\r\n", TRACE),
        (f"traceparent: 00-{TRACE}-b7ad6b7169203331-01-more\r\n", None),
        (f"traceparent: ff-{TRACE}-b7ad6b7169203331-01\r\n", None),
        (f"traceparent: 00-{'0' * 32}-b7ad6b7169203331-01\r\n", None),
        (f"traceparent: 00-{TRACE}-{'0' * 16}-01\r\n", None),
        (f"traceparent: 00-{TRACE[1:]}-b7ad6b7169203331-01\r\n", None),
        (f"x-traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n", None),
        (f"traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n" * 2, None),
        ("traceparent: \r\n", None),
        ("", None),
    ],
)
def test_a_trace_id_is_that_of_a_valid_traceparent(lines: str, trace: str | None) -> None:
    """W3C Trace Context, 3.2: anything else has no trace id."""
    assert value("trace_id", forward=lines) == trace


def test_a_trace_of_the_gateway() -> None:
    """With traces on, the id is that of the span, whatever is left of the fields."""
    assert value("trace_id", trace_id=TRACE.encode()) == TRACE


@pytest.mark.parametrize(
    ("gate_us", "limiter_us", "gate", "limiter"),
    [
        (35, 250, "0.035", "0.250"),
        (0, 1_500, "0.000", "1.500"),
        (None, None, None, None),
        (2_345, None, "2.345", "10.000"),
    ],
)
def test_phases(
    gate_us: int | None, limiter_us: int | None, gate: str | None, limiter: str | None
) -> None:
    """In milliseconds; a limiter that did not answer took until the request's end, 12.345 ms."""
    found = [
        value(name, gate_us=gate_us, limiter_us=limiter_us) for name in ("gate_ms", "limiter_ms")
    ]
    assert found == [gate, limiter]


@pytest.mark.parametrize(
    ("header", "name"), [("user-agent", "user_agent"), ("referer", "referrer")]
)
def test_long_headers(header: str, name: str) -> None:
    """Their texts have a bound, in memory, time and the log; a key at the bound is not shown."""
    assert value(name, forward=f"{header}: {'a' * MOST_TEXT}\r\n") == "a" * MOST_TEXT
    found = value(name, forward=f"{header}: {chr(0xE9) * 30_000}\r\n")
    assert found == chr(0xE9) * MOST_TEXT + "..."
    before = "/" * (MOST_TEXT - 10)
    found = value(name, forward=f"{header}: {before}{KEY}\r\n")
    assert found is not None
    assert KEY[:8] not in found


def test_many_parameters() -> None:
    """Each takes time, and a client can send thousands."""
    form = AccessLogFormat(query="keep")
    fits, more = (["a=1"] * count for count in (MOST_PARAMETERS, MOST_PARAMETERS + 1))
    assert value("query", form, query=f"?{'&'.join(fits)}") == "&".join(fits)
    assert value("query", form, query=f"?{'&'.join(more)}") == "&".join([*fits, "..."])


def test_a_key_in_a_header() -> None:
    """It is no credential there, and still not shown."""
    assert value("user_agent", forward=f"user-agent: {KEY}\r\n") == "gwk_[redacted]"
    assert value("host", host=KEY) == "gwk_[redacted]"
    assert KEY not in line_of(AccessLogFormat(), host=KEY)
