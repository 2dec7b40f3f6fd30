"""Where a delivery may go: the URL of a watch, and the addresses that its host has.

A customer names the URL. Without bounds, the gateway would send requests for him into the network
that it stands in: to a database, a neighbour, the metadata of the cloud. The host is a name that
may change its address, so the address is judged when it is dialled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from gateway.domain.networks import Address, Network

#: The longest URL, in bytes.
MOST_URL: Final = 2048
#: https://fetch.spec.whatwg.org/#port-blocking: ports of other protocols, which a request could be
#: taken for a message of.
BAD_PORTS: Final = frozenset(
    (0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101)
    + (102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389)
    + (427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636)
    + (989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566)
    + (6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080)
)
MOST_PORT: Final = 65_535
_PRINTABLE = re.compile(r"[\x21-\x7e]+").fullmatch
#: https, a name or an address in brackets, a port, and what follows. No parser finds another host
#: in it: there is no user, and no backslash, which browsers take for a slash.
_URL = re.compile(
    r"https://([a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(?:[/?].*)?",
    re.IGNORECASE,
).fullmatch
#: https://url.spec.whatwg.org/#ends-in-a-number-checker: a host that is an IPv4 address, also in
#: writings that only some parsers take for one.
_ends_in_number = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE).fullmatch

#: The only IPv6 addresses that are routed, and those of them that are no hosts of the internet:
#: protocol assignments with Teredo, documentation, 6to4, documentation.
_V6: Final = IPv6Network("2000::/3")
_NOT_V6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
#: This network, private, CGNAT, loopback, link-local, protocol assignments, documentation, 6to4
#: relays, benchmarks, multicast, reserved; and 168.63.129.16, which a cloud uses as its own inside.
_NOT_V4: Final = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Destinations:
    """Which addresses deliveries may go to.

    allowed: ranges beside the internet; denied: ranges that are not, whatever else holds
    """

    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()

    def admit(self, address: Address) -> bool:
        """May a delivery go to this address?"""
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if _is_in(address, self.denied):
            return False
        if _is_in(address, self.allowed):
            return True
        if isinstance(address, IPv6Address):
            return address in _V6 and not _is_in(address, _NOT_V6)
        return not _is_in(address, _NOT_V4)

    def fault_of_address(self, url: str) -> str | None:
        """Why a URL without other faults cannot be a watch's, if its host is an address.

        None: it can, or the host is a name.
        """
        found = _URL(url)
        host = "" if found is None else found[1]
        try:
            if host.startswith("["):
                address: Address = IPv6Address(host[1:-1])
            elif _ends_in_number(host):
                # Of other writings, such as 0x7f.1, programs make different addresses, or none.
                address = IPv4Address(host)
            else:
                return None
        except ValueError:
            return "an address that is not written as 192.0.2.1 or [2001:db8::1]"
        return None if self.admit(address) else "an address that deliveries may not go to"


def fault_of_url(url: str) -> str | None:
    """Why a URL cannot be a watch's; None: it can. Its address is not looked up."""
    if len(url) > MOST_URL:
        return f"a URL of {len(url)} characters, expected at most {MOST_URL}"
    if not _PRINTABLE(url):
        return "a URL with a space, a control character or one beyond ASCII"
    if not url.lower().startswith("https://"):
        return "a URL that does not begin with https://"
    if "#" in url:
        return "a URL with a fragment, which is never sent"
    authority = re.split(r"[/?]", url[len("https://") :], maxsplit=1)[0]
    if "@" in authority or "\\" in authority:
        return "a URL with a user or password in it"
    found = _URL(url)
    if found is None:
        return "a host or port that is not valid"
    port = int(found[2] or 443)
    if port in BAD_PORTS or port > MOST_PORT:
        return f"port {port}, which is of another protocol or none"
    return None


def _is_in(address: Address, ranges: Iterable[Network]) -> bool:
    return any(address.version == each.version and address in each for each in ranges)
