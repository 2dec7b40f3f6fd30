"""The console's session cookie, which the proxy passes on in neither direction."""

from __future__ import annotations

import pytest

from gateway.domain.cookies import SECURE_SESSION, SESSION
from gateway.http1.cookies import MARK, MOST_SESSIONS, sets_session, without_session


def test_both_names_are_found_by_one_mark() -> None:
    """So that a line without it need not be looked at."""
    assert all(MARK in name.encode() for name in (SESSION, SECURE_SESSION))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (b"Cookie: gateway_session=x", b""),
        (b"Cookie: __Host-gateway_session=x", b""),
        (b"Cookie: gateway_session", b""),
        (b"Cookie:gateway_session=x;a=b", b"Cookie: a=b\r\n"),
        (b"Cookie: a=b;\tgateway_session = x", b"Cookie: a=b\r\n"),
        (b"Cookie: a=b; gateway_session=x; gateway_session=y; c=d", b"Cookie: a=b; c=d\r\n"),
        (b"Cookie: my_gateway_session=x", b"Cookie: my_gateway_session=x\r\n"),
        (b"Cookie: gateway_sessions=x", b"Cookie: gateway_sessions=x\r\n"),
        (b"Cookie: a=gateway_session=x", b"Cookie: a=gateway_session=x\r\n"),
        (b"X-Cookie: gateway_session=x", b"X-Cookie: gateway_session=x\r\n"),
        (b"Cookie: a=b; " + b"gateway_session=x; " * (MOST_SESSIONS + 1), b""),
    ],
)
def test_what_is_left_of_a_request(line: bytes, left: bytes) -> None:
    """The session is taken out; other cookies, and fields that are none, are left as they are."""
    before, after = b"Host: a\r\n", b"X: y\r\n"
    assert without_session(before + line + b"\r\n" + after) == before + left + after


@pytest.mark.parametrize(
    ("value", "sets"),
    [
        (b"gateway_session=x", True),
        (b"gateway_session=x; Domain=a.example; Path=/", True),
        (b"__Host-gateway_session=; Secure; Path=/", True),
        (b"gateway_session", True),
        # Without a name, it comes back as gateway_session=x.
        (b"=gateway_session=x", True),
        (b" = gateway_session=x", True),
        (b"a=b; gateway_session=x", False),
        (b"a=gateway_session", False),
        (b"gateway_session2=x", False),
    ],
)
def test_which_answers_set_it(value: bytes, sets: bool) -> None:
    """A pair of that name, or one without a name that a browser would send back as one."""
    assert sets_session(value) is sets
