"""Where deliveries may go."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks.destinations import MOST_URL, Destinations, fault_of_url
from tests.kit.reach import mostly, reached, reaches

INTERNET = Destinations()


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_the_internet(text: str) -> None:
    """Global addresses, also as mapped ones."""
    assert INTERNET.admit(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "255.255.255.255", "224.0.0.1", "198.18.0.1", "192.0.2.1", "168.63.129.16"),
        *("::1", "::", "fe80::1", "fd00::1", "fc00::1", "ff02::1", "2001:db8::1", "3fff::1"),
        *("2002:7f00:1::", "64:ff9b::7f00:1", "2001::1", "::ffff:127.0.0.1", "::127.0.0.1"),
        *("::ffff:169.254.169.254", "4000::1", "fd00:ec2::254"),
    ],
)
def test_other_networks(text: str) -> None:
    """What is not a host of the internet, or reaches one that is not by another writing."""
    assert not INTERNET.admit(ip_address(text))


@reaches(0.2)
@given(
    mostly(
        st.sampled_from(["8.0.0.0/8", "2600::/12", "::ffff:8.0.0.0/104"]).flatmap(
            lambda network: st.ip_addresses(network=network)
        ),
        st.ip_addresses(),
    )
)
def test_global_alone(address: object) -> None:
    """Whatever is admitted is global in the standard library's view as well."""
    found = ip_address(str(address))
    if INTERNET.admit(found):
        reached()
        assert (getattr(found, "ipv4_mapped", None) or found).is_global


def test_ranges_of_settings() -> None:
    """Allowed ones are added, and denied ones go first."""
    some = Destinations(
        allowed=(ip_network("127.0.0.0/8"), ip_network("fd00::/8")),
        denied=(ip_network("127.0.0.2/32"), ip_network("1.1.1.0/24")),
    )
    found = [
        some.admit(ip_address(text))
        for text in ("127.0.0.1", "::ffff:127.0.0.1", "fd00::1", "8.8.8.8", "127.0.0.2", "1.1.1.1")
    ]
    assert found == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:8443/hooks?a=b",
        "HTTPS://Example.com/",
        "https://[2606:4700::1111]/x",
        "https://example.com/" + "a" * (MOST_URL - 20),
    ],
)
def test_urls(url: str) -> None:
    """https, any other port, and any path."""
    assert fault_of_url(url) is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.com/", "a URL that does not begin with https://"),
        ("ftp://example.com/", "a URL that does not begin with https://"),
        ("//example.com/", "a URL that does not begin with https://"),
        ("https:///x", "not valid"),
        ("https://a:b@example.com/", "user or password"),
        ("https://example.com\\@evil/", "user or password"),
        ("https://example.com:22/", "port 22"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "port 99999"),
        ("https://[::1/", "not valid"),
        ("https://example.com/#a", "fragment"),
        ("https://example.com/a b", "a space"),
        ("https://example.com/\n", "a space"),
        ("https://ex\u00e4mple.com/", "beyond ASCII"),
        ("https://example.com/" + "a" * MOST_URL, "at most 2048"),
    ],
)
def test_other_urls(url: str, words: str) -> None:
    """The error says what was found or expected."""
    found = fault_of_url(url)
    assert found is not None
    assert words in found


@pytest.mark.parametrize(
    "host",
    [
        *("10.0.0.1", "127.0.0.1", "169.254.169.254", "192.0.2.1", "[::1]", "[fd00::1]"),
        *("[::ffff:10.0.0.1]", "[::ffff:a00:1]", "[::127.0.0.1]", "[64:ff9b::a00:1]"),
    ],
)
def test_a_host_that_is_an_address(host: str) -> None:
    """It is judged as the dialled one is."""
    allowed = Destinations(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
    for url in (f"https://{host}", f"https://{host}:8443/a?b", f"HTTPS://{host.upper()}/"):
        assert INTERNET.fault_of_address(url) == "an address that deliveries may not go to"
        assert allowed.fault_of_address(url) is None


@pytest.mark.parametrize(
    "host",
    [
        *("2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "127.1", "127.0.1", "017700000001"),
        *("10.0.0.1.", "0x7f.0.0.0x1.", "0x", "1.2.3.4.5", "256.0.0.1", "8.8.8.08", "a.0x1"),
        *("134744072", "[:::1]", "[1:2]", "[::ffff:1.2.3]"),
    ],
)
def test_an_address_in_another_writing(host: str) -> None:
    """Programs differ in what address it is, so that it is none, whatever is allowed."""
    allowed = Destinations(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
    for its in (INTERNET, allowed):
        found = its.fault_of_address(f"https://{host}/")
        assert found == "an address that is not written as 192.0.2.1 or [2001:db8::1]"


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "10.0.0.1.test", "0x7f.com", "a1"]
)
def test_another_host(host: str) -> None:
    """A public address, or a name: its addresses are judged when it is dialled."""
    assert INTERNET.fault_of_address(f"https://{host}/") is None


@given(st.ip_addresses())
def test_one_rule(address: object) -> None:
    """A URL is refused exactly where its address is."""
    host = str(address) if ":" not in str(address) else f"[{address}]"
    is_refused = INTERNET.fault_of_address(f"https://{host}/") is not None
    assert is_refused != INTERNET.admit(ip_address(str(address)))
