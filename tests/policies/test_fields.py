"""Values written as text: valid ones, and the expectation for each invalid one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import UNITS_US, Limit
from gateway.domain.upstreams import Server
from gateway.http1.paths import CanonicalPath, canonical
from gateway.policies import fields
from gateway.policies.fields import Match
from tests.kit.reach import reached, reaches
from tests.kit.rows import each_row


@each_row(
    ("reader", "text", "value"),
    [
        (fields.read_rate, "30/minute", (30, 60_000_000)),
        (fields.read_rate, "1/second", (1, 1_000_000)),
        (fields.read_rate, "2/hour", (2, 3_600_000_000)),
        (fields.read_rate, "10_000/day", (10_000, 86_400_000_000)),
        (fields.read_rate, " 30 / minute ", (30, 60_000_000)),
        (fields.read_rate, "4294967295/day", (4_294_967_295, 86_400_000_000)),
        (fields.read_delivery_rate, "10/second", (10, 1_000_000)),
        (fields.read_delivery_rate, " 1_000 / hour", (1_000, 3_600_000_000)),
        (fields.read_duration, "10s", 10.0),
        (fields.read_duration, "50ms", 0.05),
        (fields.read_duration, "1m", 60.0),
        (fields.read_duration, "1.5h", 5_400.0),
        (fields.read_duration, "36500d", 36_500 * 86_400.0),
        (fields.read_duration, "0s", 0.0),
        (fields.read_size, "512B", 512),
        (fields.read_size, "1KB", 1_000),
        (fields.read_size, "32KiB", 32_768),
        (fields.read_size, "2 MB", 2_000_000),
        (fields.read_size, "10MiB", 10_485_760),
        (fields.read_size, "1GB", 1_000_000_000),
        (fields.read_size, "1GiB", 1_073_741_824),
        (fields.read_percent, "0%", 0.0),
        (fields.read_percent, "0.5%", 0.5),
        (fields.read_percent, "100.000%", 100.0),
        (fields.read_some_percent, "0.0001%", 0.0001),
        (fields.read_share, "20%", 0.2),
        (fields.read_per, "key", "key"),
        (fields.read_per, "account", "account"),
        (fields.read_per, "ip", "ip"),
        (fields.read_per, "header:X-Tenant", "header:x-tenant"),
        (fields.read_per, "header:X-Real-IP", "header:x-real-ip"),
        (fields.read_trusted_only, "X-Any", "X-Any"),
        (fields.read_trusted_only, "X-Any-*", "X-Any-*"),
        (fields.read_server, "http://127.0.0.1:9000", Server("http", "127.0.0.1", 9000)),
        (fields.read_server, "https://Api.Example", Server("https", "api.example", 443)),
        (fields.read_server, "http://svc_a", Server("http", "svc_a", 80)),
        (fields.read_server, "http://x/", Server("http", "x", 80)),
        (fields.read_server, "http://x/v1/a%20b/", Server("http", "x", 80, "/v1/a%20b")),
        (fields.read_server, "http://[2001:DB8::1]:81", Server("http", "2001:db8::1", 81)),
        (fields.read_match, "GET /api/search/*", Match("GET", ("api", "search"), True)),
        (fields.read_match, "* /**", Match("*", (), True)),
        (fields.read_match, "GET /", Match("GET", (), False)),
        (fields.read_match, "GET /a/*/b/", Match("GET", ("a", "*", "b"), False)),
        (fields.read_match, "PATCH   /a/**/", Match("PATCH", ("a",), True)),
        (fields.read_match, "GET /a%20b/%C3%A9/é", Match("GET", ("a b", "é", "é"), False)),
        (fields.read_match, "M-SEARCH /x", Match("M-SEARCH", ("x",), False)),
        # one segment with a name
        (fields.read_match, "GET /{id}", Match("GET", ("*",), False, ("id",))),
        (
            fields.read_match,
            "GET /{a}/*/{b-1}/",
            Match("GET", ("*", "*", "*"), False, ("a", "", "b-1")),
        ),
        (fields.read_match, "GET /a/{a}/**", Match("GET", ("a", "*"), True, ("", "a"))),
        (fields.read_match, "GET /%7Bid%7D", Match("GET", ("{id}",), False)),
        # any number of segments
        (fields.read_match, "POST /a/**/b", Match("POST", ("a", "**", "b"), False)),
        (fields.read_match, "POST /**/b/*", Match("POST", ("**", "b"), True)),
        (fields.read_match, "POST /a/**/*/b", Match("POST", ("a", "*", "**", "b"), False)),
        (fields.read_match, "GET /**/{n}", Match("GET", ("*",), True, ("n",))),
        (fields.read_match, "GET /**/**", Match("GET", (), True)),
        (
            fields.read_match,
            "GET /**/{n}/**/b",
            Match("GET", ("*", "**", "b"), False, ("n", "", "")),
        ),
        # several methods
        (fields.read_match, "GET,POST /a", Match("GET,POST", ("a",), False)),
        (fields.read_match, "PUT , GET,HEAD /a", Match("PUT,GET,HEAD", ("a",), False)),
    ],
)
def test_valid_texts(reader: Callable[[str], Any], text: str, value: object) -> None:
    """Each text is read as the value beside it."""
    assert reader(text) == value


@each_row(
    ("reader", "text", "expected"),
    [
        (fields.read_rate, "30/minut", "a rate such as 30/minute"),
        (fields.read_rate, "30", "a rate such as"),
        (fields.read_rate, "1.5/second", "a rate such as"),
        (fields.read_rate, "-1/second", "a rate such as"),
        (fields.read_rate, "1__0/second", "a rate such as"),
        (fields.read_rate, "٣/second", "a rate such as"),
        (fields.read_rate, "30/minute\n", "a rate such as"),
        (fields.read_rate, "0/minute", "from 1 to 4294967295"),
        (fields.read_rate, "4294967296/day", "from 1 to 4294967295"),
        (fields.read_rate, "9" * 5000 + "/day", "from 1 to 4294967295"),
        (fields.read_rate, "10000/week", "per week or month use quota"),
        (fields.read_delivery_rate, "10/day", "a rate such as 10/second"),
        (fields.read_delivery_rate, "10", "a rate such as 10/second"),
        (fields.read_delivery_rate, "0/second", "from 1 to 4294967295"),
        (fields.read_duration, "10", "a duration such as"),
        (fields.read_duration, "10 s", "a duration such as"),
        (fields.read_duration, "-1s", "a duration such as"),
        (fields.read_duration, "1w", "a duration such as"),
        (fields.read_duration, "infs", "a duration such as"),
        (fields.read_duration, "36501d", "up to 36500d"),
        (fields.read_duration, "9" * 400 + "d", "up to 36500d"),
        (fields.read_size, "1.5KB", "bytes such as"),
        (fields.read_size, "32kib", "bytes such as"),
        (fields.read_percent, "5", "a percentage from 0% to 100% such as 10%"),
        (fields.read_percent, "-1%", "a percentage from 0% to 100% such as 10%"),
        (fields.read_percent, "100.5%", "a percentage from 0% to 100% such as 10%"),
        (fields.read_percent, "0.00001%", "a percentage from 0% to 100% such as 10%"),
        (fields.read_some_percent, "0.0%", "a percentage from 0.0001% to 100% such as 10%"),
        (fields.read_share, "0%", "a percentage from 0.0001% to 100% such as 10%"),
        (fields.read_size, "32", "bytes such as"),
        (fields.read_size, "9" * 5000 + "B", "bytes such as"),
        (fields.read_network, "10.0.0.1/8", "CIDR"),
        (fields.read_network, "proxy", "CIDR"),
        (fields.read_per, "keys", "key, account, ip or header:NAME"),
        (fields.read_per, "header:", "key, account, ip or header:NAME"),
        (fields.read_per, "header:X Y", "key, account, ip or header:NAME"),
        (fields.read_per, "header:Authorization", "no secret"),
        (fields.read_per, "header:apiKey", "no secret"),
        *[
            (fields.read_per, f"header:{name}", "a header that is forwarded unchanged")
            for name in ("Host", "X-Forwarded-For", "via", "Content_Length", "X-Gateway-Plan")
        ],
        (fields.read_server, "127.0.0.1:9000", "an address such as"),
        (fields.read_server, "ftp://x", "an address such as"),
        (fields.read_server, "http://u:p@x", "an address such as"),
        (fields.read_server, "http://x/a b", "an address such as"),
        (fields.read_server, "http://x/a/../b", "a path without dot segments"),
        (fields.read_server, "http://x//a", "a path without empty segments"),
        (fields.read_server, "http://x/**", "without wildcards"),
        (fields.read_server, "http://x/{a}", "in the braces"),
        (fields.read_server, "http://x?q", "an address such as"),
        (fields.read_server, "http://::1:80", "an address such as"),
        (fields.read_server, "http://[::g]", "an address such as"),
        (fields.read_server, "http://[1::2::3]", "an address such as"),
        (fields.read_server, "http://x:0", "a port"),
        (fields.read_server, "http://x:65536", "a port"),
        (fields.read_match, "/a", "methods in capitals"),
        (fields.read_match, "get /a", "methods in capitals"),
        (fields.read_match, "GET /a /b", "methods in capitals"),
        (fields.read_match, "GET,post /a", "methods in capitals"),
        (fields.read_match, "GET POST /a", "methods in capitals"),
        (fields.read_match, "GET,,POST /a", "methods in capitals"),
        (fields.read_match, ",GET /a", "methods in capitals"),
        (fields.read_match, "GET, /a", "methods in capitals"),
        (fields.read_match, "GET/a", "methods in capitals"),
        (fields.read_match, "GET,GET /a", "each method once"),
        (fields.read_match, "GET,* /a", r"a path after \*, which is any method"),
        (fields.read_match, "*,GET /a", r"a path after \*, which is any method"),
        (fields.read_match, "GET a", "a method and a path such as"),
        (fields.read_match, "GET", "quotes around it if it has a comma"),
        (fields.read_match, "", "a method and a path such as"),
        (fields.read_match, "GET //", "empty segments"),
        (fields.read_match, "GET /a//b", "empty segments"),
        (fields.read_match, "GET /a//", "empty segments"),
        (fields.read_match, "GET /a/../b", "dot segments"),
        (fields.read_match, "GET /.", "dot segments"),
        (fields.read_match, "GET /%2e%2E/b", "dot segments"),
        (fields.read_match, "GET /**/a/**/b/**", r"at most 2 \*\* in a path"),
        (fields.read_match, "GET /**/a/**/b/*", r"at most 2 \*\* in a path"),
        (fields.read_match, "GET /a*", "whole segment"),
        (fields.read_match, "GET /***", "whole segment"),
        (fields.read_match, "GET /a**/b", "whole segment"),
        (fields.read_match, "GET /a;b", "percent-encoded"),
        (fields.read_match, "GET /{id}.json", "braces only around a whole segment"),
        (fields.read_match, "GET /v{id}", "braces only around a whole segment"),
        (fields.read_match, "GET /{id", "braces only around a whole segment"),
        (fields.read_match, "GET /id}", "braces only around a whole segment"),
        (fields.read_match, "GET /{id}{x}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{*}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{path...}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{id:[0-9]+}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{é}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{" + "a" * 65 + "}", "a name of up to 64 letters"),
        (fields.read_match, "GET /{id}/x/{id}", "different names, not {id} twice"),
        (fields.read_match, "GET /a?b", "percent-encoded"),
        (fields.read_match, "GET /a%2", "percent-encoded"),
        (fields.read_match, "GET /a\\b", "percent-encoded"),
        (fields.read_match, "GET /a%2Fb", "only one spelling"),
        (fields.read_match, "GET /a%5cb", "only one spelling"),
        (fields.read_match, "GET /a%3bb", "only one spelling"),
        (fields.read_match, "GET /%2A", "only one spelling"),
        (fields.read_match, "GET /%252e", "only one spelling"),
        (fields.read_match, "GET /%00", "only one spelling"),
        (fields.read_match, "GET /a%3Fb", "only one spelling"),
        (fields.read_match, "GET /C%23/x", "only one spelling"),
        (fields.read_match, "GET /a./b", "only one spelling"),
        (fields.read_match, "GET /a%20", "only one spelling"),
        (fields.read_match, "GET /%ff", "UTF-8"),
        (fields.read_match, "GET " + "/a" * 65, "at most 64 segments"),
    ],
)
def test_invalid_texts(reader: Callable[[str], Any], text: str, expected: str) -> None:
    """Each text is refused, and the error says what was expected."""
    with pytest.raises(ValueError, match=expected):
        reader(text)


@given(st.integers(1, 2**32 - 1), st.sampled_from(sorted(UNITS_US)), st.integers(1, 2**32 - 1))
def test_a_limit_stays_exact(amount: int, unit: str, burst: int) -> None:
    """A valid limit has a burst of at least its amount, and is exact in a double."""
    try:
        limit = fields.parse_rate(f"{amount}/{unit}", name="own", burst=burst)
    except ValueError:
        unit_us = -(-UNITS_US[unit] // amount)
        assert burst < amount or burst * unit_us > 2**52
    else:
        assert limit == Limit("own", "rate", amount, UNITS_US[unit], burst)
        assert limit.peak >= amount
        # An exact sum with today's date, and the dates of many years.
        assert limit.peak * limit.unit_us + 4_000_000_000_000_000 < 2**53


def test_a_rate_of_a_keys_own() -> None:
    """The short form is a limit without a burst."""
    assert fields.parse_rate("300/minute") == Limit("plan", "rate", 300, 60_000_000)


@each_row(("burst", "words"), [(299, "at least"), (2**32, "up to")])
def test_a_burst_that_does_not_go_with_the_rate(burst: int, words: str) -> None:
    """A burst is at least the rate's amount, and fits into four bytes."""
    with pytest.raises(ValueError, match=words):
        fields.parse_rate("300/minute", burst=burst)


@reaches(0.1)
@given(st.text(min_size=1, max_size=8), st.booleans())
def test_a_pattern_is_decoded_as_a_path_is(text: str, encode: bool) -> None:
    """A valid pattern without wildcards has the same segments as that path."""
    from urllib.parse import quote

    # Space around a pattern is ignored.
    path = ("/a/" + (quote(text, safe="") if encode else text)).strip()
    try:
        match = fields.read_match(f"GET {path}")
    except ValueError:
        return
    if match.rest or {"*", "**"} & {*match.segments}:
        return
    reached()
    sent = canonical(quote(path, safe="/%;!$&'()*+,=:@~").encode())
    assert isinstance(sent, CanonicalPath)
    assert sent.segments == match.segments
