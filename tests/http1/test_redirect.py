"""Where requests over plain HTTP are redirected to, and which are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.key_format import mint
from gateway.errors import (
    BAD_HOST,
    BAD_REQUEST_LINE,
    BAD_TARGET,
    KEY_IN_URL,
    VERSION_UNKNOWN,
    Refusal,
)
from gateway.http1.redirect import Redirect, read_redirect
from tests.kit.reach import mostly, reached, reaches


def head(line: bytes = b"GET / HTTP/1.1", *lines: bytes) -> bytes:
    return b"".join(each + b"\r\n" for each in (line, *lines)) + b"\r\n"


@pytest.mark.parametrize(
    ("host", "port", "location"),
    [
        (b"a.test", 443, b"https://a.test"),
        (b"A.test", 8443, b"https://A.test"),
        (b"a.test:80", 443, b"https://a.test"),
        (b"a.test:8080", 8443, b"https://a.test:8443"),
        (b"a.test:8080", 443, b"https://a.test"),
        (b"192.0.2.1", 8443, b"https://192.0.2.1"),
        (b"[2001:db8::1]", 8443, b"https://[2001:db8::1]"),
        (b"[2001:db8::1]:8080", 8443, b"https://[2001:db8::1]:8443"),
    ],
)
def test_the_host_and_the_port(host: bytes, port: int, location: bytes) -> None:
    """The host is that of the request; a port is named where the client named one."""
    found = read_redirect(head(b"GET /a HTTP/1.1", b"Host: " + host), port)
    assert found == Redirect("GET", location + b"/a")


@pytest.mark.parametrize(
    "target", [b"/", b"/a/b?c=d&e", b"/%2F/..;x", b"//evil.test/", b"/a?x=https://b.test", b"/?"]
)
def test_path_and_query_are_the_same(target: bytes) -> None:
    """Byte for byte: the https listener decides about them."""
    found = read_redirect(head(b"POST %b HTTP/1.1" % target, b"host:a.test"), 443)
    assert found == Redirect("POST", b"https://a.test" + target)


KEY = max(mint("production", lambda most: most // 2), key=len).encode()


@pytest.mark.parametrize(
    ("line", "lines", "refusal"),
    [
        (b"GET / HTTP/1.1", [], BAD_HOST),
        (b"GET / HTTP/1.0", [], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host: a", b"Host: a"], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host: a/b"], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host: user@a"], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host: a, b"], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host:"], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host: a:99999"], BAD_HOST),
        (b"GET / HTTP/1.1", [b"Host: " + KEY], BAD_HOST),
        (b"GET / HTTP/2.0", [b"Host: a"], VERSION_UNKNOWN),
        (b"get / HTTP/1.1", [b"Host: a"], BAD_REQUEST_LINE),
        (b"\x16\x03\x01", [], BAD_REQUEST_LINE),
        (b"GET http://a/ HTTP/1.1", [b"Host: a"], BAD_TARGET),
        (b"OPTIONS * HTTP/1.1", [b"Host: a"], BAD_TARGET),
        (b"CONNECT a:443 HTTP/1.1", [b"Host: a"], BAD_TARGET),
        (b"GET /a#b HTTP/1.1", [b"Host: a"], BAD_TARGET),
        (b"GET /\\evil.test HTTP/1.1", [b"Host: a"], BAD_TARGET),
        (b"GET /?key=%b HTTP/1.1" % KEY, [b"Host: a"], KEY_IN_URL),
        (b"GET /%b HTTP/1.1" % KEY.replace(b"_", b"%5F"), [b"Host: a"], KEY_IN_URL),
    ],
)
def test_refusals(line: bytes, lines: list[bytes], refusal: Refusal) -> None:
    """Nothing else gets a Location, in particular no key."""
    assert read_redirect(head(line, *lines), 443) is refusal


TARGETS = st.lists(st.sampled_from([b"a", b"/", b"?", b"%0d%0a", b".."])).map(b"".join)
HOSTS = st.sampled_from([b"a.test", b"a.test:80", b"[::1]:80", b" a\t"])
ENDS = st.sampled_from([b"\r", b"\n", b"\r\nX: y", b"\0", b"\xff"])
ANY = st.binary(max_size=64)


@reaches(0.1)
@given(
    mostly(
        st.tuples(TARGETS, HOSTS),
        st.tuples(st.builds(bytes.__add__, TARGETS, ENDS), HOSTS),
        st.tuples(TARGETS, st.builds(bytes.__add__, HOSTS, ENDS)),
        st.tuples(ANY, ANY),
    )
)
def test_no_line_can_be_added(sent: tuple[bytes, bytes]) -> None:
    """Whatever was sent, a location is one line of visible ASCII."""
    found = read_redirect(b"GET /%b HTTP/1.1\r\nHost: %b\r\n\r\n" % sent, 443)
    if isinstance(found, Redirect):
        reached()
        assert all(0x20 < byte < 0x7F for byte in found.location)
