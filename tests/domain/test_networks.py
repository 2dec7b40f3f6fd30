"""Addresses and ranges, and the client's address behind proxies."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.networks import (
    MOST_HOPS,
    client_address,
    is_within,
    limit_subject,
    parse_address,
    parse_forwarded,
    parse_forwarded_for,
    parse_network,
)

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
def test_invalid_addresses(text):
    """Text that can be read in two ways, or not at all, is no address."""
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


@pytest.mark.parametrize(
    "text",
    [
        *("", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.1/104", "any"),
        *("fe80::1%eth0", "fe80::1%a\r\nb/128"),
    ],
)
def test_invalid_ranges(text):
    """Bits beyond the prefix are an error; a zone can be any text."""
    with pytest.raises(ValueError):
        parse_network(text)


@given(addresses, addresses)
def test_a_range_of_one(address, other):
    """An address is in its own range, and another one is not."""
    assert is_within(address, (parse_network(str(address)),))
    assert is_within(other, (parse_network(str(address)),)) == (address == other)
    assert not is_within(address, ())


TRUSTED = (parse_network("10.0.0.0/8"), parse_network("2001:db8::/32"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # a client may send any value
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),  # the left one may be forged
        ("10.0.0.1", ["198.51.100.1", "10.0.0.2"], "198.51.100.1"),  # two trusted proxies
        ("10.0.0.1", ["10.0.0.3", "10.0.0.2"], "10.0.0.3"),  # a client from inside
        ("10.0.0.1", ["198.51.100.1", "unknown"], "10.0.0.1"),  # nothing left of "unknown" counts
        ("10.0.0.1", ["unknown", "10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [""], "10.0.0.1"),
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
def test_the_client_address(peer, forwarded, client):
    """The first address from the right that is not a trusted proxy's, or the last valid one."""
    assert client_address(parse_address(peer), forwarded, TRUSTED) == ip_address(client)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ("",)),
        ("1.1.1.1", ("1.1.1.1",)),
        (" 1.1.1.1 ,\t2.2.2.2:80", ("1.1.1.1", "2.2.2.2:80")),
        ("a,,b", ("a", "", "b")),
        ("1.1.1.1\xa0", ("1.1.1.1\xa0",)),  # of whitespace, a list has only spaces and tabs
        ("x" * 80 + "," + "y" * 81, ("x" * 80, "")),  # too long to be an address
    ],
)
def test_what_x_forwarded_for_says(text, items):
    """Its items in order, without whitespace around."""
    assert parse_forwarded_for(text) == items


def test_the_nearest_proxies_are_read():
    """Of too many, the last ones count: the nearest proxies wrote them."""
    addresses = [f"10.0.{n // 256}.{n % 256}" for n in range(4_000)]
    assert parse_forwarded_for(",".join(addresses)) == tuple(addresses[-MOST_HOPS:])
    elements = [f"for={address}" for address in addresses]
    assert parse_forwarded(",".join(elements))[-MOST_HOPS:] == tuple(addresses[-MOST_HOPS:])
    assert len(parse_forwarded("a=b," * 4_000)) <= MOST_HOPS + 1
    assert len(parse_forwarded(",".join(["for=a", '"a'] * 500))) <= MOST_HOPS + 1


@given(addresses, st.lists(st.text(max_size=20)))
def test_no_proxy_is_trusted_by_default(peer, forwarded):
    """If no proxy is trusted, the client is the other end of the connection."""
    assert client_address(peer, forwarded, ()) == peer


@given(st.lists(st.text(max_size=30) | st.ip_addresses().map(str)))
def test_no_header_makes_it_raise(forwarded):
    """Any header gives a client address."""
    everything = (parse_network("0.0.0.0/0"), parse_network("::/0"))
    found = client_address(parse_address("10.0.0.1"), forwarded, everything)
    assert parse_address(str(found)) == found


@pytest.mark.parametrize(
    ("values", "items"),
    [
        ([], ()),
        ([""], ()),
        (["for=192.0.2.1"], ("192.0.2.1",)),
        (["FOR=192.0.2.1;proto=https;by=203.0.113.9"], ("192.0.2.1",)),
        (["proto=https;for=192.0.2.1"], ("192.0.2.1",)),
        (["for=192.0.2.1, for=192.0.2.2"], ("192.0.2.1", "192.0.2.2")),
        (["for=192.0.2.1", "for=192.0.2.2"], ("192.0.2.1", "192.0.2.2")),
        (["for=192.0.2.1,\t for=192.0.2.2 "], ("192.0.2.1", "192.0.2.2")),
        (['for="192.0.2.1:4711"'], ("192.0.2.1:4711",)),
        (['for="[2001:db8::1]:4711"'], ("[2001:db8::1]:4711",)),
        (['For="\\[2001:db8::1\\]"'], ("[2001:db8::1]",)),  # a quoted pair means its character
        (["for=unknown, for=_hidden"], ("unknown", "_hidden")),
        (["for=a;;by=b;"], ("a",)),
        (["for=a, , for=b,"], ("a", "b")),  # empty elements of a list are skipped
        (["by=203.0.113.9"], ("",)),  # a proxy that does not name its client
        ([";"], ("",)),
        (["for=a;For=b"], ("",)),  # RFC 7239, 4: each parameter once
        (['host="a, for=b";for=c'], ("c",)),  # a comma in quotes separates nothing
        (['for="a, b"'], ("",)),  # no node has such a name
        (["for=a, for =b"], ("",)),
        (["," * 9 + "for=a" + "," * 9], ("a",)),
        (["for=a" + "," * 2_038 + "for=b"], ("a", "b")),
        (["xfor=a" + "," * 2_038 + "for=b"], ("", "b")),  # cut within the first element
        (["for=a;x=" + "x" * 2_048], ("",)),
        (["for=a, for=b;x, for=c"], ("", "c")),
        (["for=[2001:db8::1], for=c"], ("", "c")),  # must be quoted
        (['for="a\x00", for=c'], ("", "c")),
        # an unclosed quote of a client does not swallow what the proxies appended
        (['for="a', "for=c"], ("", "c")),
        (['for=a;x="', "for=b", 'for="[2001:db8::1]"'], ("", "b", "[2001:db8::1]")),
        (['for=a;x="\\', "for=b"], ("", "b")),
    ],
)
def test_what_forwarded_says(values, items):
    """Each element's for=, in order; "" for one without an address, and for all unreadable ones."""
    assert parse_forwarded(",".join(values)) == items


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ('for=198.51.100.1, for="10.0.0.2:80"', "198.51.100.1"),
        ('for="198.51.100.1:_x7"', "198.51.100.1"),  # RFC 7239, 6.3: a port that is hidden
        ('for="[2001:db9::1]:443", for="[2001:db8::9]"', "2001:db9::1"),
        ("for=198.51.100.1, for=unknown", "10.0.0.1"),
        ("for=198.51.100.1, for=_hidden, for=10.0.0.2", "10.0.0.2"),
        ("for=198.51.100.1, by=10.0.0.3, for=10.0.0.2", "10.0.0.2"),
        ("for=198.51.100.1, (junk), for=10.0.0.2", "10.0.0.2"),
        ("for=198.51.100.1, , for=10.0.0.2", "198.51.100.1"),
        ("for=::ffff:198.51.100.1", "10.0.0.1"),
        ('for="::ffff:198.51.100.1"', "198.51.100.1"),
    ],
)
def test_the_client_address_by_forwarded(value, client):
    """Read from the right like X-Forwarded-For, up to the first element without an address."""
    forwarded = parse_forwarded(value)
    assert client_address(parse_address("10.0.0.1"), forwarded, TRUSTED) == ip_address(client)


@given(st.lists(st.text(max_size=30) | st.text('for=";,:[]\\ _a1.\t', max_size=40), max_size=4))
def test_no_forwarded_makes_it_raise(values):
    """Any header gives items, and a client address."""
    client = client_address(parse_address("10.0.0.1"), parse_forwarded(",".join(values)), TRUSTED)
    assert parse_address(str(client)) == client


nodes = st.one_of(
    st.sampled_from(["unknown", "_hidden", "192.0.2.1"]),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]:80"),
    st.text("ab,;=\"\\ '", max_size=8),
)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(
    st.text('for=";, \\x', max_size=30),
    st.lists(st.tuples(nodes, st.none() | nodes), min_size=1, max_size=4),
)
def test_elements_of_proxies_are_read_after_any_others(sent, appended):
    """Well-formed elements are parsed back, whatever precedes them."""
    elements = [
        f"for={quoted(node)}" + ("" if host is None else f";host={quoted(host)}")
        for node, host in appended
    ]
    read = parse_forwarded(",".join([sent, *elements]))
    assert read[-len(appended) :] == tuple(
        node if re.fullmatch(r"[\w.:\[\]]+", node) else "" for node, _ in appended
    )


@pytest.mark.parametrize(
    ("address", "prefix", "subject"),
    [
        ("192.0.2.1", 64, "192.0.2.1"),
        ("192.0.2.1", 32, "192.0.2.1"),
        ("::ffff:192.0.2.1", 64, "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48"),
        ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::/56"),
        ("2001:db8:1:2:3:4:5:6", 32, "2001:db8::/32"),
        ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6/128"),
        ("::1", 64, "::/64"),
    ],
)
def test_what_an_address_is_counted_under(address, prefix, subject):
    """IPv4 by itself, IPv6 by its network; given as an address or as text."""
    parsed = parse_address(address)
    assert limit_subject(parsed, prefix) == subject
    assert limit_subject(str(parsed), prefix) == subject


@given(addresses, addresses, st.integers(32, 128))
def test_one_network_is_one_subject(address, other, prefix):
    """Two addresses are counted together only if they share the network."""
    subject = limit_subject(address, prefix)
    network = parse_network(subject)
    assert address in network
    assert (limit_subject(other, prefix) == subject) == (other in network)
