"""Addresses and ranges, and who the client behind proxies is."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.networks import client_address, is_within, parse_address, parse_network

addresses = st.ip_addresses().map(lambda address: parse_address(str(address)))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", IPv4Address("192.0.2.1")),
        ("::ffff:192.0.2.1", IPv4Address("192.0.2.1")),
        ("::FFFF:C000:201", IPv4Address("192.0.2.1")),
        ("::ffff:192.0.2.1%eth0", IPv4Address("192.0.2.1")),
        ("2001:DB8::1", IPv6Address("2001:db8::1")),
        ("2001:db8:0:0::1", IPv6Address("2001:db8::1")),
        ("fe80::1%eth0", IPv6Address("fe80::1")),
    ],
)
def test_one_form_of_an_address(text, address):
    """However an address is written, it is one value, and a mapped one is IPv4."""
    assert parse_address(text) == address
    assert str(parse_address(text)) == str(address)


@pytest.mark.parametrize(
    "text", ["", "1", "192.0.2", "192.0.2.256", "192.0.2.01", "host", "::1/64"]
)
def test_what_is_no_address(text):
    """What can be read in two ways, or not at all, is no address."""
    with pytest.raises(ValueError):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", IPv4Network("10.0.0.0/8")),
        ("10.0.0.1", IPv4Network("10.0.0.1/32")),
        ("0.0.0.0/0", IPv4Network("0.0.0.0/0")),
        ("2001:db8::/32", IPv6Network("2001:db8::/32")),
        ("::/0", IPv6Network("::/0")),
        ("::ffff:10.0.0.0/104", IPv4Network("10.0.0.0/8")),
        ("::ffff:10.0.0.1", IPv4Network("10.0.0.1/32")),
        ("::ffff:0:0/96", IPv4Network("0.0.0.0/0")),
        ("::/64", IPv6Network("::/64")),  # holds the mapped ones, and more
    ],
)
def test_one_form_of_a_range(text, network):
    """A single address is a range of one; a range of mapped addresses is IPv4."""
    assert parse_network(text) == network


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.1/104", "any"])
def test_what_is_no_range(text):
    """Bits beyond the prefix are a mistake, not decoration."""
    with pytest.raises(ValueError):
        parse_network(text)


@given(addresses, addresses)
def test_a_range_of_one(address, other):
    """An address lies in its own range, and another one does not."""
    assert is_within(address, (parse_network(str(address)),))
    assert is_within(other, (parse_network(str(address)),)) == (address == other)
    assert not is_within(address, ())


TRUSTED = (parse_network("10.0.0.0/8"), parse_network("2001:db8::/32"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # a stranger may claim what it likes
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),  # the left one is only claimed
        ("10.0.0.1", ["198.51.100.1", "10.0.0.2"], "198.51.100.1"),  # two proxies of ours
        ("10.0.0.1", ["10.0.0.3", "10.0.0.2"], "10.0.0.3"),  # a client from inside
        ("10.0.0.1", ["198.51.100.1", "unknown"], "10.0.0.1"),  # not a word beyond "unknown"
        ("10.0.0.1", ["unknown", "10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", [" 198.51.100.1 "], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1:443"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1:x"], "10.0.0.1"),
        ("10.0.0.1", ["[2001:db9::1]:443"], "2001:db9::1"),
        ("10.0.0.1", ["[2001:db9::1]"], "2001:db9::1"),
        ("10.0.0.1", ["[2001:db9::1]x"], "10.0.0.1"),
        ("10.0.0.1", ["[2001:db9::1"], "10.0.0.1"),
        ("10.0.0.1", ["[]"], "10.0.0.1"),
        ("10.0.0.1", [":80"], "10.0.0.1"),
        ("10.0.0.1", ["2001:db9::1"], "2001:db9::1"),
        ("10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1", "::ffff:10.0.0.2"], "198.51.100.1"),  # mapped, and trusted
        ("2001:db8::5", ["198.51.100.1"], "198.51.100.1"),
    ],
)
def test_who_the_client_is(peer, forwarded, client):
    """The first address from the right that is not a trusted proxy's, as far as can be believed."""
    assert client_address(parse_address(peer), forwarded, TRUSTED) == ip_address(client)


@given(addresses, st.lists(st.text(max_size=20)))
def test_nobody_is_believed_by_default(peer, forwarded):
    """Where no proxy is trusted, the client is the other end of the connection."""
    assert client_address(peer, forwarded, ()) == peer


@given(st.lists(st.text(max_size=30) | st.ip_addresses().map(str)))
def test_no_header_makes_it_raise(forwarded):
    """Whatever stands in the header, there is a client."""
    everybody = (parse_network("0.0.0.0/0"), parse_network("::/0"))
    client_address(parse_address("10.0.0.1"), forwarded, everybody)
