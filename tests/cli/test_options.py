"""HOST:PORT, and host names, as given on a command line."""

from __future__ import annotations

import click
import pytest

from gateway.cli.options import read_address, read_host_names

CONTEXT = click.Context(click.Command("any"))
OPTION = click.Option(["--listen"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    """A host and a port, without the brackets of an IPv6 host."""
    assert read_address(CONTEXT, OPTION, text) == address


@pytest.mark.parametrize(
    "text",
    ["", "8080", ":8080", "host", "host:", "host:x", "host:65536", "host:-1", "host:٣",
     "::1:80", "[::1]", "[host]:80", "[::1:80", "h:000080"],
)  # fmt: skip
def test_an_invalid_address_is_refused(text: str) -> None:
    """The error has what was found and what was expected."""
    with pytest.raises(click.BadParameter, match="expected HOST:PORT"):
        read_address(CONTEXT, OPTION, text)


def test_names_of_hosts_are_read() -> None:
    """In lower case, without a final dot."""
    names = ("Gateway.Internal", "gate-1.", "localhost")
    expected = ("gateway.internal", "gate-1", "localhost")
    assert read_host_names(CONTEXT, OPTION, names) == expected
    assert read_host_names(CONTEXT, OPTION, ()) == ()


@pytest.mark.parametrize(
    "text", ["", ".", "a..b", "gate:9901", "http://gate", "*", "*.internal", "a b", "x" * 64, "é"]
)
def test_an_invalid_name_is_refused(text: str) -> None:
    """A name with a port, a scheme or a pattern would never match."""
    with pytest.raises(click.BadParameter, match="expected a name such as"):
        read_host_names(CONTEXT, OPTION, ("gate", text))
