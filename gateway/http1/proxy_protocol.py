"""The PROXY protocol, versions 1 and 2: who a connection is from, told by the proxy in front.

Bytes in, a value out, as of the specification at haproxy.org (proxy-protocol.txt, 2020/03/05).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: Version 1: "a 108-byte buffer is always enough", its terminating NUL included.
MOST_V1_BYTES: Final = 107
#: Version 2: addresses and TLVs; nobody honest comes near.
MOST_V2_BYTES: Final = 4096

_V1 = re.compile(
    rb"PROXY (?:UNKNOWN[\x20-\x7e]*|(TCP4|TCP6) (\S+) (\S+) (\d{1,5}) (\d{1,5}))"
).fullmatch


@dataclass(frozen=True, slots=True)
class Header:
    """source: address and port of the client; None: the proxy speaks for itself, or does not know.
    length: the bytes that the header takes.
    """

    source: tuple[str, int] | None
    length: int


@dataclass(frozen=True, slots=True)
class Incomplete:
    """More bytes are needed."""


def read_header(data: bytes) -> Header | Incomplete | str:
    """Read the header off the start of a connection; words where there is no valid one."""
    if data[:12] == SIGNATURE[: len(data)]:
        return _read_v2(data)
    if data[:6] == b"PROXY "[: len(data)]:
        return _read_v1(data)
    return "it begins with neither version's signature"


def _read_v1(data: bytes) -> Header | Incomplete | str:
    end = data.find(b"\r\n", 0, MOST_V1_BYTES)
    if end < 0:
        return Incomplete() if len(data) < MOST_V1_BYTES else "the line does not end"
    match = _V1(data, 0, end)
    if match is None:
        return "the line is malformed"
    if match[1] is None:
        return Header(None, end + 2)
    family = IPv4Address if match[1] == b"TCP4" else IPv6Address
    try:
        source = family(match[2].decode("ascii"))
        family(match[3].decode("ascii"))
    except ValueError:
        return "an address is malformed"
    if max(int(match[4]), int(match[5])) > 65_535:
        return "a port is malformed"
    return Header((str(source), int(match[4])), end + 2)


def _read_v2(data: bytes) -> Header | Incomplete | str:
    if len(data) < 16:
        return Incomplete()
    length = 16 + int.from_bytes(data[14:16], "big")
    command, family = data[12], data[13] >> 4
    if command not in {0x20, 0x21}:
        return "the version or command is unknown"
    if length > MOST_V2_BYTES:
        return f"it is longer than {MOST_V2_BYTES} bytes"
    if len(data) < length:
        return Incomplete()
    if command == 0x20 or family not in {1, 2}:
        return Header(None, length)
    size = 4 if family == 1 else 16
    if length < 16 + 2 * size + 4:
        return "the addresses are cut short"
    address = data[16 : 16 + size]
    source = IPv4Address(address) if family == 1 else IPv6Address(address)
    return Header((str(source), int.from_bytes(data[16 + 2 * size :][:2], "big")), length)
