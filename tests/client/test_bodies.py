"""Bodies of answers: how long they may be, and how long they may take."""

from __future__ import annotations

import httpx
import pytest
from gateway_client.bodies import MOST_OF_ERROR, Body
from gateway_client.errors import UnexpectedAnswer

REQUEST = httpx.Request("GET", "https://api.example.com/v1/a")


def body_of(status: int = 200, most: int = 10, ends_s: float = 5.0) -> tuple[Body, httpx.Response]:
    response = httpx.Response(status, request=REQUEST, stream=httpx.ByteStream(b""))
    return Body(response, most, ends_s), response


def test_a_body() -> None:
    """Its parts are put together."""
    body, response = body_of()
    assert all(body.is_wanted(part, 1.0) for part in (b"0123", b"", b"456789"))
    body.keep()
    assert response.content == b"0123456789"


def test_a_body_that_is_too_long() -> None:
    """The error says how long it may be."""
    body, _ = body_of()
    assert body.is_wanted(b"0123456789", 1.0)
    with pytest.raises(UnexpectedAnswer, match=r"more than 10 bytes \(max_answer_bytes\)"):
        body.is_wanted(b"x", 1.0)


@pytest.mark.parametrize("part", [MOST_OF_ERROR, MOST_OF_ERROR + 1, 10 * MOST_OF_ERROR])
def test_the_body_of_an_error(part: int) -> None:
    """It is cut off: little of it is needed, and the error itself must not be lost."""
    body, response = body_of(500, most=1)
    assert body.is_wanted(b"x" * part, 1.0) is (part == MOST_OF_ERROR)
    body.keep()
    assert response.content == b"x" * MOST_OF_ERROR


def test_a_body_that_drips() -> None:
    """It has to end in time, whatever comes until then."""
    body, _ = body_of()
    assert body.is_wanted(b"1", 5.0)
    with pytest.raises(httpx.ReadTimeout, match="did not end in time"):
        body.is_wanted(b"2", 5.1)
