"""Sets of addresses: the same answers as a search through all their ranges."""

from __future__ import annotations

import pickle
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.address_lists import AccessList, AddressRanges
from gateway.domain.networks import Network, is_within
from tests.kit.reach import reached, reaches

#: Few bits of each half differ, so that ranges often meet, contain or repeat each other.
_v4 = st.builds(
    lambda number, prefix: ip_network((number << 16, prefix), strict=False),
    st.integers(0, 0xFF),
    st.integers(8, 32),
)
_v6 = st.builds(
    lambda high, low, prefix: ip_network((high << 62 | low, prefix), strict=False),
    st.integers(0, 7),
    st.integers(0, 7),
    st.integers(60, 128).filter(lambda prefix: prefix > 0),
).filter(lambda network: isinstance(network, IPv6Network))
_networks = st.lists(st.one_of(_v4, _v6), max_size=12)


@reaches(0.3)
@given(_networks, st.lists(st.one_of(_v4, _v6), max_size=12))
def test_membership(networks: list[Network], others: list[Network]) -> None:
    """Of the first and last address of each range, of those beside it, and of other ranges'."""
    ranges = AddressRanges(networks)
    for network in (*networks, *others):
        bits = 32 if isinstance(network, IPv4Network) else 128
        make = type(network.network_address)
        for number in (int(network.network_address), int(network.broadcast_address)):
            for near in (number - 1, number, number + 1):
                if 0 <= near < 1 << bits:
                    address = make(near)
                    reached()
                    assert (address in ranges) == is_within(address, networks)


@given(_networks)
def test_equal_sets_are_equal(networks: list[Network]) -> None:
    """In any order, repeated, and after a journey to another process."""
    ranges = AddressRanges(networks)
    same = AddressRanges([*reversed(networks), *networks])
    assert (ranges, hash(ranges), len(ranges)) == (same, hash(same), len(same))
    assert pickle.loads(pickle.dumps(ranges)) == ranges
    assert ranges != AddressRanges([*networks, IPv4Network("203.0.113.7/32")])


def test_ranges_that_touch_are_one() -> None:
    """Two halves are their whole."""
    halves = AddressRanges([IPv4Network("10.0.0.0/25"), IPv4Network("10.0.0.128/25")])
    assert halves == AddressRanges([IPv4Network("10.0.0.0/24")])
    assert str(halves) == "1 range"


@pytest.mark.parametrize(
    ("allow", "deny", "permitted"),
    [
        (None, None, [True, True, True]),
        (["10.0.0.0/8"], None, [True, True, False]),
        (None, ["10.1.0.0/16"], [True, False, True]),
        (["10.0.0.0/8"], ["10.1.0.0/16"], [True, False, False]),
        (["10.1.0.0/16"], ["10.0.0.0/8"], [False, False, False]),
        ([], None, [False, False, False]),
    ],
)
def test_deny_has_the_last_word(
    allow: list[str] | None, deny: list[str] | None, permitted: list[bool]
) -> None:
    """Without `allow`, all addresses may send requests; an empty one allows none."""
    lists = [
        None if one is None else AddressRanges(ip_network(text) for text in one)
        for one in (allow, deny)
    ]
    access = AccessList(*lists)
    addresses = ["10.0.0.1", "10.1.0.1", "192.0.2.1"]
    assert [access.permits(ip_address(text)) for text in addresses] == permitted
