"""Addresses and ranges: one form for each, whatever way it was written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MAPPED = IPv6Network("::ffff:0:0/96")
_with_port = re.compile(r"\[([^][]+)\](?::\d{1,5})?|([^:]+):\d{1,5}", re.ASCII).fullmatch


def parse_address(text: str) -> Address:
    """An address, with an IPv4-mapped IPv6 one as the IPv4 address it is. Raises ValueError."""
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            address = IPv6Address(int(address))
        return address.ipv4_mapped or address
    return address


def parse_network(text: str) -> Network:
    """A CIDR range or a single address; a mapped range becomes the IPv4 range it is.

    Raises ValueError, also where bits are set beyond the prefix ("10.0.0.1/8").
    """
    network = ip_network(text, strict=True)
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    return network


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    """Is the address in one of the ranges?"""
    return any(address in network for network in networks)


def client_address(peer: Address, forwarded: Sequence[str], trusted: Sequence[Network]) -> Address:
    """Who the client is: the first address, from the right, that is not a trusted proxy's.

    peer: the other end of the connection; forwarded: X-Forwarded-For's items, in order. A word
    that is no address ends the search at the last address that could be believed.
    """
    client = peer
    for item in reversed(forwarded):
        if not is_within(client, trusted):
            break
        try:
            client = parse_address(_without_port(item.strip()))
        except ValueError:
            break
    return client


def _without_port(text: str) -> str:
    """`[::1]:80` and `192.0.2.1:80` name a port as well."""
    found = _with_port(text)
    return found[1] or found[2] if found else text


def limit_subject(address: Address, ipv6_prefix: int) -> str:
    """What limits per address count an address under: an IPv6 client's is its whole network."""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False))
