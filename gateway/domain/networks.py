"""Addresses and ranges in one canonical form each; and the address of a client behind proxies.

The client's address is the one that the last trusted proxy reports, in X-Forwarded-For or Forwarded
(RFC 7239); where a request has both, X-Forwarded-For is read. So a proxy that writes only Forwarded
must remove an X-Forwarded-For that the client sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
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

#: The most proxies that are read, the nearest ones. A client may send 32 KiB of them.
MOST_HOPS = 32

_MAPPED = IPv6Network("::ffff:0:0/96")
#: RFC 7239, 6.3: a port may be hidden too, as a word that begins with "_".
_PORT = r":(?:\d{1,5}|_[A-Za-z0-9._-]+)"
_with_port = re.compile(rf"\[([^][]+)\](?:{_PORT})?|([^:]+){_PORT}", re.ASCII).fullmatch

#: RFC 7239, 4: forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] ), a pair being
#: token "=" ( token / quoted-string ). Spaces belong to the list, not to an element.
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_PLAIN = r'[^"\\\x00-\x08\x0a-\x1f\x7f]*+'
_QUOTED = rf'"{_PLAIN}(?:\\[\t\x20-\x7e\x80-\xff]{_PLAIN})*"'
_PAIR = rf"{_WORD}=(?:{_WORD}|{_QUOTED})"
_element = re.compile(rf"[ \t]*+((?:{_PAIR})?(?:;(?:{_PAIR})?)*)[ \t]*+").fullmatch
_pairs = re.compile(rf"({_WORD})=(?:({_WORD})|({_QUOTED}))").findall
_unescape = re.compile(r"\\(.)").sub
#: The characters of a node, RFC 7239, 6: an address, a word, a port. None of them would split it
#: when it is written into a list again.
_is_node = re.compile(r"[A-Za-z0-9._:\[\]-]+").fullmatch
#: How many characters of Forwarded are read, from its end, and how many commas, including those
#: within quoted strings and between empty elements.
_MOST_FORWARDED = 2_048
_MOST_COMMAS = 4 * MOST_HOPS
#: The longest item: an IPv6 address in brackets with a port that is hidden by a word.
_MOST_HOP = 80


def parse_address(text: str) -> Address:
    """An address; an IPv4-mapped IPv6 address becomes the IPv4 address. Raises ValueError."""
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            address = IPv6Address(int(address))
        return address.ipv4_mapped or address
    return address


@lru_cache(maxsize=4096)
def peer_address(text: str) -> tuple[Address, str]:
    """The address at the other end of a connection, as the kernel writes it, and its text."""
    address = parse_address(text)
    return address, str(address)


def parse_network(text: str) -> Network:
    """A CIDR range or a single address; a mapped range becomes the IPv4 range.

    Raises ValueError, also if host bits are set ("10.0.0.1/8"), and if there is a zone
    ("fe80::1%eth0"): it names an interface of one host, and may be any text.
    """
    if "%" in text:
        raise ValueError("a zone is no part of a range")
    network = ip_network(text, strict=True)
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    return network


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    """Is the address in one of the ranges?"""
    return any(address in network for network in networks)


def client_address(peer: Address, forwarded: Sequence[str], trusted: Sequence[Network]) -> Address:
    """The client's address: the first one, from the right, that is not a trusted proxy's.

    peer: the other end of the connection; forwarded: as `parse_forwarded_for` or
    `parse_forwarded` returns it. The search ends at an item that is not an address, with the last
    address that a trusted proxy reported.
    """
    client = peer
    for item in reversed(forwarded):
        if not is_within(client, trusted):
            break
        address = _hop(item)
        if address is None:
            break
        client = address
    return client


# There are few proxies, and parsing an address takes 2 us. Items are at most _MOST_HOP long.
@lru_cache(maxsize=4_096)
def _hop(item: str) -> Address | None:
    """The address in an item; None: it has none."""
    try:
        return parse_address(_without_port(item))
    except ValueError:
        return None


def limit_subject(address: Address | str, ipv6_prefix: int) -> str:
    """The subject of an address: "192.0.2.1", "2001:db8:1:2::/64".

    A client with an IPv6 address has a whole network, and could otherwise use another address for
    each request. address: if a text, in the format of `parse_address`.
    """
    if isinstance(address, str):
        if ":" not in address:
            return address
        address = IPv6Address(address)
    if isinstance(address, IPv4Address):
        return str(address)
    bits = 128 - ipv6_prefix
    network = int(address) >> bits << bits
    return f"{IPv6Address(network)}/{ipv6_prefix}"


def parse_forwarded_for(text: str) -> tuple[str, ...]:
    """The nearest items of X-Forwarded-For, which are the last, in order; "" for one too long.

    text: all its lines, as one list
    """
    items = [item.strip(" \t") for item in text.rsplit(",", MOST_HOPS)[-MOST_HOPS:]]
    return tuple([item if len(item) <= _MOST_HOP else "" for item in items])


def parse_forwarded(text: str) -> tuple[str, ...]:
    """The for= of the nearest elements of Forwarded, in order, for `client_address`.

    text: all its lines, as one list

    An element without a valid for= is "". The elements are read from the right, in the order of
    trust: each proxy appends its own, so that an unclosed quotation mark of a client cannot hide
    what the proxies wrote. All that is left of an element that cannot be read is one "".
    """
    if len(text) > _MOST_FORWARDED:
        text = '"' + text[-_MOST_FORWARDED:]  # no element begins so: one that was cut is not read
    items: list[str] = []
    end = comma = len(text)
    commas = 0
    while comma > 0 and commas < _MOST_COMMAS and len(items) < MOST_HOPS:
        commas += 1
        comma = text.rfind(",", 0, comma)
        # A comma may be part of a quoted string; then the text after it is no element.
        element = _element(text, comma + 1, end)
        if element is not None:
            if element[1]:
                items.append(_forwarded_for(element[1]))
            else:
                # RFC 9110, 5.6.1: "parse and ignore a reasonable number of empty list elements".
                comma = len(text[: max(comma, 0)].rstrip(" \t,"))
            end = comma
    if end > 0:
        items.append("")
    return tuple(reversed(items))


def _without_port(text: str) -> str:
    """An address without its port, as in `[::1]:80` and `192.0.2.1:80`."""
    found = _with_port(text)
    return found[1] or found[2] if found else text


def _forwarded_for(element: str) -> str:
    """The for= of an element; "" if it has none, or two."""
    named = [
        token or _unescape(r"\1", quoted[1:-1])
        for name, token, quoted in _pairs(element)
        if name.lower() == "for"
    ]
    return named[0] if len(named) == 1 and _is_node(named[0]) else ""
