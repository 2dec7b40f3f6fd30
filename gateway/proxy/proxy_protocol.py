"""The PROXY protocol, versions 1 and 2: a header that a proxy in front sends before all requests.

`read_header` gets all bytes of a connection so far. Once it returns anything but `Incomplete`, more
bytes never change its result. The destination, and version 2's further values, are ignored.

Call it only for bytes from a trusted proxy: any other client could choose its address.
Specification: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from gateway.domain.networks import parse_address

#: Section 2.1: a version 1 line has at most 107 bytes, CRLF included, "so a 108-byte buffer is
#: always enough to store all the line".
MOST_LINE_BYTES: Final = 107
#: Of version 2's addresses and values. The field allows 65,535; a certificate's subject, the
#: longest value in practice, has a few hundred.
MOST_BLOCK_BYTES: Final = 4_096

_WORD: Final = b"PROXY "
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_START_BYTES: Final = 16

#: Section 2.1: "exactly one space" between the parts, and no leading zeros, which could be read as
#: octal.
_PORT: Final = rb"(0|[1-9][0-9]{0,4})"
_TCP = re.compile(
    rb"PROXY (?:TCP4 ([0-9.]+) ([0-9.]+)|TCP6 ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+))"
    rb" " + _PORT + rb" " + _PORT + rb"\r\n"
).fullmatch
#: "the receiver must ignore anything presented before the CRLF is found".
_UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: [^\r\n]*+)?\r\n").fullmatch

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
#: Address family and transport, and the length of their addresses: unspecified, TCP and UDP over
#: IPv4 and IPv6, Unix streams and datagrams. Section 2.2 assigns no others.
_FAMILIES: Final = {
    0x00: 0,
    **{_TCP4: 12, 0x12: 12},
    **{_TCP6: 36, 0x22: 36},
    **{0x31: 216, 0x32: 216},
}


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The header needs more bytes."""


@dataclass(frozen=True, slots=True)
class Header:
    """A complete header.

    source: the client's address and port, ("192.0.2.1", 56324), an IPv4-mapped one as IPv4; None:
            the proxy is the client (a health check) or does not know it: the address of the
            connection counts
    length: of the header; the bytes after it are the client's
    """

    source: tuple[str, int] | None
    length: int


INCOMPLETE: Final = Incomplete()


def read_header(data: bytes) -> Incomplete | Header | str:
    """Read the header at the beginning of a connection; a string says why it is invalid."""
    if data[: len(_SIGNATURE)] == _SIGNATURE[: len(data)]:
        return _read_binary(data)
    if data[: len(_WORD)] == _WORD[: len(data)]:
        return _read_line(data)
    return "neither version 1 nor version 2 of the PROXY protocol"


def _read_line(data: bytes) -> Incomplete | Header | str:
    """Version 1: PROXY TCP4 192.0.2.1 192.0.2.2 56324 443."""
    end = data.find(b"\n", 0, MOST_LINE_BYTES) + 1
    if not end:
        if len(data) < MOST_LINE_BYTES:
            return INCOMPLETE
        return f"a version 1 line of more than {MOST_LINE_BYTES} bytes"
    line = data[:end]
    if _UNKNOWN(line):
        return Header(None, end)
    found = _TCP(line)
    if found is None:
        return "a malformed version 1 line"
    *addresses, source_port, port = (part.decode("ascii") for part in found.groups(b""))
    family = IPv4Address if addresses[0] else IPv6Address
    source, destination = addresses[:2] if addresses[0] else addresses[2:]
    try:
        family(source)
        family(destination)
    except ValueError:
        return "a version 1 line with an invalid address"
    if int(source_port) > 65_535 or int(port) > 65_535:
        return "a version 1 line with a port above 65535"
    return Header((str(parse_address(source)), int(source_port)), end)


def _read_binary(data: bytes) -> Incomplete | Header | str:
    """Version 2: signature, version and command, family, length, addresses, further values."""
    if len(data) < _START_BYTES:
        return INCOMPLETE
    command, family = data[12], data[13]
    length = int.from_bytes(data[14:16], "big")
    if command not in {_LOCAL, _PROXY}:
        return f"the unknown version and command 0x{command:02x}"
    if length > MOST_BLOCK_BYTES:
        return f"{length} bytes of addresses and values, of at most {MOST_BLOCK_BYTES}"
    # "the receiver must accept this connection as valid and must use the real connection endpoints
    # and discard the protocol block including the family which is ignored".
    if command == _PROXY:
        needed = _FAMILIES.get(family)
        if needed is None:
            return f"the unknown address family and transport 0x{family:02x}"
        if length < needed:
            return f"{length} bytes of addresses, of at least {needed}"
    end = _START_BYTES + length
    if len(data) < end:
        return INCOMPLETE
    return Header(_binary_source(data, family) if command == _PROXY else None, end)


def _binary_source(data: bytes, family: int) -> tuple[str, int] | None:
    """Read the source; both addresses precede both ports.

    For families that it does not use, datagrams and Unix sockets, the specification wants that the
    receiver "automatically falls back to the UNSPEC mode".
    """
    if family == _TCP4:
        address, port = str(IPv4Address(data[16:20])), data[24:26]
    elif family == _TCP6:
        address, port = str(parse_address(str(IPv6Address(data[16:32])))), data[48:50]
    else:
        return None
    return address, int.from_bytes(port, "big")
