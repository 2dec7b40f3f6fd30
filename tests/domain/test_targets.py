"""What connections are opened to, and how it is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.targets import MOST_TARGETS, Target, is_one_place, literal, targets_of
from gateway.domain.upstreams import Server

API = Server("http", "api.test", 9000)


@pytest.mark.parametrize(
    ("target", "label"),
    [
        (Target(Server("http", "10.0.0.5", 9000), ("10.0.0.5",)), "10.0.0.5:9000"),
        (Target(Server("http", "::1", 9000), ("::1",)), "[::1]:9000"),
        (Target(API, ("10.0.0.5",)), "api.test:9000 (10.0.0.5)"),
        (Target(Server("https", "api.test", 443), ("::1",)), "api.test (::1)"),
        (Target(Server("http", "localhost", 9000), ("127.0.0.1", "::1")), "localhost:9000"),
    ],
)
def test_labels(target: Target, label: str) -> None:
    """A server that is given by its address has it once; one with a name has both."""
    assert target.label == label


@given(st.permutations(["10.0.0.2", "10.0.0.10", "9.9.9.9", "::1", "2001:db8::1", "10.0.0.2"]))
def test_the_order_of_records_is_of_no_importance(addresses: list[str]) -> None:
    """Each address is one target, in the same order whatever the order of the records."""
    found = targets_of(API, addresses)
    assert [target.addresses for target in found] == [
        ("9.9.9.9",),
        ("10.0.0.2",),
        ("10.0.0.10",),
        ("::1",),
        ("2001:db8::1",),
    ]


def test_there_are_not_too_many() -> None:
    """A name with thousands of addresses does not create thousands of health checks."""
    found = targets_of(API, (f"10.0.{index >> 8}.{index & 255}" for index in range(5_000)))
    assert len(found) == MOST_TARGETS


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("api.localhost", True),
        ("mylocalhost", False),
        ("localhost.test", False),
    ],
)
def test_localhost_is_one_target(host: str, expected: bool) -> None:
    """Both of its addresses are one machine, whose servers often listen on one of them only."""
    assert is_one_place(host) is expected
    server = Server("http", host, 9000)
    both = targets_of(server, ["::1", "127.0.0.1"])
    assert len(both) == (1 if expected else 2)
    assert targets_of(server, []) == ()


@pytest.mark.parametrize("host", ["192.0.2.1", "::1"])
def test_an_address_needs_no_look_up(host: str) -> None:
    """It is its own target; a name is none."""
    server = Server("http", host, 80)
    assert literal(server) == (Target(server, (host,)),)
    assert literal(API) == ()
