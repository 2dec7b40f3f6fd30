"""Places of an upstream in its answers, as its client gets them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.rewrites import stripped
from gateway.domain.translation import (
    MOST_ATTRIBUTES,
    Places,
    Translation,
    cookie,
    location,
    translated,
)
from gateway.policies.rewrites import read_template
from tests.domain.route_rules import no_deadline, route

AUTHORITIES = frozenset({b"up.internal:9000", b"shop.example", b"[::1]:9000"})
NAMES = frozenset({b"up.internal", b"shop.example"})


def places(**changes: object) -> Places:
    given_ = {
        "authorities": AUTHORITIES,
        "names": NAMES,
        "base": b"/v1",
        "rewrite": stripped(["shop"]),
        "client": b"shop.example",
        **changes,
    }
    return Places(**given_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"/v1/login?next=/v1/x#top", b"/shop/login?next=/v1/x#top"),
        (b"/v1", b"/shop/"),
        (b"/v1/", b"/shop/"),
        (b"/v1?x", b"/shop/?x"),
        (b"http://up.internal:9000/v1/a/", b"/shop/a/"),
        (b"HTTP://UP.Internal:9000/v1/a", b"/shop/a"),
        (b"https://up.internal:9000/v1/a", b"/shop/a"),
        (b"//up.internal:9000/v1/a", b"/shop/a"),
        (b"http://shop.example/v1/a", b"/shop/a"),
        (b"http://shop.example:80/v1/a", b"/shop/a"),
        (b"https://shop.example:443/v1/a", b"/shop/a"),
        (b"http://[::1]:9000/v1/%2Fx", b"/shop/%2Fx"),
        (b"/v1/caf\xc3\xa9", b"/shop/caf\xc3\xa9"),
        # All else is left as it is.
        (b"https://elsewhere.example/v1/a", None),
        (b"http://up.internal/v1/a", None),
        (b"http://shop.example:443/v1/a", None),
        (b"http://user@shop.example/v1/a", None),
        (b"http://shop.example.evil/v1/a", None),
        (b"/other", None),
        (b"/v1x", None),
        (b"/V1/a", None),
        (b"http://up.internal:9000/other", None),
        (b"http://up.internal:9000", None),
        (b"login", None),
        (b"../login", None),
        (b"?x", None),
        (b"", None),
        (b"//", None),
        (b"///v1/a", None),
        (b"http:///v1/a", None),
        (b"http:/v1/a", None),
        (b"/v1/../x", None),
        (b"/v1/%2e%2E/x", None),
        (b"/v1/./x", None),
        (b"/v1/a b", None),
        (b"/v1/a\tb", None),
        (b"/v1\\evil", None),
        (b"javascript://shop.example/v1/a", None),
        (b"ftp://shop.example/v1/a", None),
    ],
)
def test_location(value: bytes, expected: bytes | None) -> None:
    """What points to the upstream becomes a path on the client's host."""
    assert location(value, places()) == (value if expected is None else expected)


@pytest.mark.parametrize(
    "value",
    [
        b"http://up.internal:9000//evil.example/",
        b"http://up.internal:9000/v1//evil.example/",
        b"http://up.internal:9000/\\evil.example/",
        b"http://up.internal:9000\\@evil.example/",
        b"http://up.internal:9000/\t/evil.example/",
        b"//up.internal:9000//evil.example",
    ],
)
def test_no_other_host_appears(value: bytes) -> None:
    """A path that a browser would read as another host is not made of a URL."""
    for base in (b"", b"/v1"):
        found = location(value, places(base=base, rewrite=None))
        assert found == value or found.startswith(b"/v1//")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a=b; Path=/", b"a=b; Path=/shop"),
        (b"a=b; path = /v1 ; HttpOnly", b"a=b; path =/shop; HttpOnly"),
        (b"a=b;Path=/v1/", b"a=b;Path=/shop"),
        (b"a=b; Path=/v1/x/", b"a=b; Path=/shop/x/"),
        (b"a=b; Path=/other", None),
        (b"a=b; Path=/v1x", None),
        (b"a=b; Path=", None),
        (b"a=b; Path", None),
        (b"a=b; Path=v1", None),
        (b"a=b; Path=//v1", None),
        (b"a=b", None),
        (b"", None),
        (b";;;", None),
        (b"a=b; Domain=up.internal", b"a=b"),
        (b"a=b; Domain=.Internal; Secure", b"a=b; Secure"),
        (b"a=b; Domain=shop.example", None),
        (b"a=b; Domain=example", None),
        (b"a=b; Domain=elsewhere.example", None),
        (b"a=b; Domain=", None),
        (b"a=b; Domain=internal.; Path=/v1", b"a=b; Domain=internal.; Path=/shop"),
        (b"__Host-a=b; Path=/; Secure", None),
        (b" __HOST-a=b; Path=/v1; Domain=up.internal", b" __HOST-a=b; Path=/v1"),
    ],
)
def test_cookies(value: bytes, expected: bytes | None) -> None:
    """Path is the client's, and no Domain is the upstream's; the value of a cookie is not read."""
    assert cookie(value, places()) == (value if expected is None else expected)


@pytest.mark.parametrize(
    ("path", "expected"),
    [(b"/", b"/items"), (b"/v2", b"/items"), (b"/v2/7", b"/items/7"), (b"/v2/7/x", b"/v2/7/x")],
)
def test_cookies_with_a_template(path: bytes, expected: bytes) -> None:
    """A wider path than the template's becomes the beginning of the route's."""
    rewrite = read_template("/v2/{id}", route("GET /items/{id}"), "GET /items/{id}")
    found = cookie(b"a=b; Path=" + path, places(base=b"", rewrite=rewrite))
    assert found == b"a=b; Path=" + expected


LINES = (
    b"Content-Type: a\r\nLOCATION: /v1/a\r\nContent-Location: /v1/b\r\nRefresh: 5; url=/v1/c\r\n"
    b"Set-Cookie: x=/v1; Path=/v1\r\nX-Location: /v1/d\r\nLink: </v1/e>\r\n"
)


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        (Translation(True, False), [1, 2, 3]),
        (Translation(False, True), [4]),
        (Translation(True, True), [1, 2, 3, 4]),
    ],
)
def test_only_what_is_asked_for(what: Translation, changed: list[int]) -> None:
    """Other fields and other bytes stay."""
    before = LINES.split(b"\r\n")
    after = translated(LINES, what, places()).split(b"\r\n")
    assert len(after) == len(before)
    assert [at for at in range(len(before)) if before[at] != after[at]] == changed
    if what.location:
        assert after[1:4] == [
            b"LOCATION: /shop/a",
            b"Content-Location: /shop/b",
            b"Refresh: 5; url=/shop/c",
        ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"0;URL='/v1/a'", b"0;URL='/shop/a'"),
        (b'5, url = "/v1/a"', b'5, url = "/shop/a"'),
        (b"5", b"5"),
        (b"5; url='/v1/a", b"5; url='/v1/a"),
        (b"5; /v1/a", b"5; /v1/a"),
    ],
)
def test_refresh(value: bytes, expected: bytes) -> None:
    """Where it has a URL, in the form of the HTML standard."""
    lines = b"Refresh: %b\r\n" % value
    assert translated(lines, Translation(True, False), places()) == b"Refresh: %b\r\n" % expected


@no_deadline
@given(
    st.binary(max_size=40), st.sampled_from([b"", b"http://up.internal:9000", b"//shop.example"])
)
def test_nothing_is_broken(tail: bytes, begin: bytes) -> None:
    """Whatever a value is: no line is added, and no other host becomes reachable."""
    value = begin + re.sub(rb"[^\t\x20-\x7e\x80-\xff]", b"", tail)
    found = location(value, places(base=b"", rewrite=None))
    assert b"\r" not in found
    assert b"\n" not in found
    if found != value:
        assert re.match(rb"/(?![/\\\t])", found)
    line = b"Set-Cookie: %b\r\n" % value
    assert translated(line, Translation(True, True), places()).count(b"\r\n") == 1


@pytest.mark.parametrize(
    "value",
    [
        b"/" * 60_000,
        b"/v1" + b"/." * 30_000,
        b"http://" + b"a" * 60_000,
        b"/v1/" + b"a/" * 30_000,
        b"0" * 60_000,
        b"5;" + b" " * 60_000 + b"url=",
        b"a=b" + b"; Path=/v1/x" * 5_000,
        b"a=b" + b"; Domain=.internal" * 3_000,
        b";" * 60_000,
    ],
)
def test_hostile_values_end(value: bytes) -> None:
    """The longest values of a head have a result of about their length: none grows beyond that."""
    for name in (b"Location", b"Refresh", b"Set-Cookie"):
        made = translated(b"%b: %b\r\n" % (name, value), Translation(True, True), places())
        assert len(made) < 2 * len(value) + 100


def test_a_cookie_with_too_many_attributes() -> None:
    """It stays as it is, at once: each attribute takes time, and a head has room for 60,000."""
    most = b"a=b" + b"; Path=/v1/x" * MOST_ATTRIBUTES
    assert cookie(most, places()) == b"a=b" + b"; Path=/shop/x" * MOST_ATTRIBUTES
    more = most + b";"
    assert cookie(more, places()) is more
