"""PROXY protocol headers, valid and invalid, whole and byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.domain.networks import parse_address
from gateway.proxy.proxy_protocol import (
    INCOMPLETE,
    MOST_BLOCK_BYTES,
    MOST_LINE_BYTES,
    Header,
    Incomplete,
    read_header,
)
from tests.kit.reach import mostly, reached, reaches

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
TCP4 = bytes([192, 0, 2, 1, 192, 0, 2, 2]) + (56_324).to_bytes(2) + (443).to_bytes(2)
TCP6 = bytes.fromhex("20010db8" + "0" * 23 + "1") * 2 + (56_324).to_bytes(2) + (443).to_bytes(2)
MAPPED = bytes.fromhex("0" * 20 + "ffffc0000201") * 2 + bytes(4)


def binary(command: int, family: int, block: bytes = b"", length: int | None = None) -> bytes:
    """A version 2 header; length: as stated, if it is not the block's."""
    stated = len(block) if length is None else length
    return SIGNATURE + bytes([command, family]) + stated.to_bytes(2) + block


def by_bytes(data: bytes) -> tuple[Incomplete | Header | str, int]:
    """The first result, and after how many bytes."""
    for end in range(len(data) + 1):
        outcome = read_header(data[:end])
        if not isinstance(outcome, Incomplete):
            return outcome, end
    return INCOMPLETE, len(data)


GOOD = {
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n": ("192.0.2.1", 56_324),
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": ("255.255.255.255", 65_535),
    b"PROXY TCP4 192.0.2.1 192.0.2.2 0 0\r\n": ("192.0.2.1", 0),
    b"PROXY TCP6 2001:DB8::1 2001:db8::2 56324 443\r\n": ("2001:db8::1", 56_324),
    b"PROXY TCP6 2001:db8:0:0:0:0:0:1 ::1 1 1\r\n": ("2001:db8::1", 1),
    b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 1\r\n": ("192.0.2.1", 1),
    b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n": (
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        65_535,
    ),
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n": None,
    b"PROXY UNKNOWN whatever \x00\xff\r\n": None,
    binary(0x21, 0x11, TCP4): ("192.0.2.1", 56_324),
    binary(0x21, 0x11, TCP4 + b"\x03\x00\x04abcd"): ("192.0.2.1", 56_324),
    binary(0x21, 0x11, TCP4 + b"\n" * (MOST_BLOCK_BYTES - 12)): ("192.0.2.1", 56_324),
    binary(0x21, 0x21, TCP6): ("2001:db8::1", 56_324),
    binary(0x21, 0x21, TCP6 + b"\x04\x00\x00"): ("2001:db8::1", 56_324),
    binary(0x21, 0x21, MAPPED): ("192.0.2.1", 0),
    binary(0x21, 0x12, TCP4): None,  # UDP
    binary(0x21, 0x22, TCP6): None,
    binary(0x21, 0x31, bytes(216)): None,  # Unix sockets
    binary(0x21, 0x32, bytes(216)): None,
    binary(0x21, 0x00): None,
    binary(0x21, 0x00, b"\x04\x00\x00"): None,
    binary(0x20, 0x00): None,  # LOCAL: a health check
    binary(0x20, 0x11, TCP4): None,
    binary(0x20, 0xFF, b"abc"): None,  # its family is ignored
}


@pytest.mark.parametrize("data", GOOD, ids=range(len(GOOD)))
def test_a_header(data: bytes) -> None:
    """The client's address, if there is one, and where the client's bytes begin."""
    header = Header(GOOD[data], len(data))
    assert read_header(data) == header
    assert read_header(data + b"GET / HTTP/1.1\r\n") == header
    assert by_bytes(data + b"PROXY") == (header, len(data))


#: What is sent, the reason, and after how many bytes it is certain.
BAD = {
    "http": (b"GET / HTTP/1.1\r\n", "neither", 1),
    "tls": (b"\x16\x03\x01", "neither", 1),
    "small letters": (b"proxy TCP4", "neither", 1),
    "almost version 1": (b"PROXX", "neither", 5),
    "almost version 2": (b"\r\n\r\n\x00\r\nQUIT\r\n", "neither", 12),
    "blank line": (b"\r\nPROXY", "neither", 3),
    "version 3": (binary(0x31, 0x11, TCP4), "version and command 0x31", 16),
    "version 0": (binary(0x01, 0x11, TCP4), "version and command 0x01", 16),
    "command 2": (binary(0x22, 0x11, TCP4), "version and command 0x22", 16),
    "family 4": (binary(0x21, 0x41, TCP4), "family and transport 0x41", 16),
    "no transport": (binary(0x21, 0x10, TCP4), "family and transport 0x10", 16),
    "no family": (binary(0x21, 0x01, TCP4), "family and transport 0x01", 16),
    "short IPv4": (binary(0x21, 0x11, TCP4[:-1]), "11 bytes of addresses, of at least 12", 16),
    "short IPv6": (binary(0x21, 0x21, TCP4), "12 bytes of addresses, of at least 36", 16),
    "short Unix": (binary(0x21, 0x31, bytes(215)), "215 bytes of addresses", 16),
    "long": (binary(0x21, 0x11, TCP4, MOST_BLOCK_BYTES + 1), "4097 bytes of addresses and", 16),
    "long LOCAL": (binary(0x20, 0x00, b"", 65_535), "65535 bytes", 16),
}
LINES = {
    "bare LF": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\n",
    "CR inside": b"PROXY TCP4 192.0.2.1\r192.0.2.2 56324 443\r\n",
    "CR inside unknown": b"PROXY UNKNOWN a\rb\r\n",
    "LF inside unknown": b"PROXY UNKNOWN a\nb\r\n",
    "unknown and more": b"PROXY UNKNOWNS\r\n",
    "nothing": b"PROXY \r\n",
    "no addresses": b"PROXY TCP4\r\n",
    "UDP4": b"PROXY UDP4 192.0.2.1 192.0.2.2 56324 443\r\n",
    "tcp4": b"PROXY tcp4 192.0.2.1 192.0.2.2 56324 443\r\n",
    "two spaces": b"PROXY  TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
    "two spaces later": b"PROXY TCP4 192.0.2.1  192.0.2.2 56324 443\r\n",
    "tab": b"PROXY TCP4\t192.0.2.1 192.0.2.2 56324 443\r\n",
    "space at the end": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 \r\n",
    "a part more": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 1\r\n",
    "a part less": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
    "another family": b"PROXY TCP4 2001:db8::1 2001:db8::2 56324 443\r\n",
    "another family, 6": b"PROXY TCP6 192.0.2.1 192.0.2.2 56324 443\r\n",
    "mixed families": b"PROXY TCP6 2001:db8::1 192.0.2.2 56324 443\r\n",
    "octal": b"PROXY TCP4 192.0.2.010 192.0.2.2 56324 443\r\n",
    "octal destination": b"PROXY TCP4 192.0.2.1 192.0.2.02 56324 443\r\n",
    "three numbers": b"PROXY TCP4 192.0.2 192.0.2.2 56324 443\r\n",
    "256": b"PROXY TCP4 192.0.2.256 192.0.2.2 56324 443\r\n",
    "scope": b"PROXY TCP6 fe80::1%eth0 ::1 56324 443\r\n",
    "brackets": b"PROXY TCP6 [::1] ::1 56324 443\r\n",
    "a name": b"PROXY TCP4 localhost 192.0.2.2 56324 443\r\n",
    "port 65536": b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n",
    "port 65536 there": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 65536\r\n",
    "port 080": b"PROXY TCP4 192.0.2.1 192.0.2.2 080 443\r\n",
    "port +80": b"PROXY TCP4 192.0.2.1 192.0.2.2 +80 443\r\n",
    "port -1": b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 -1\r\n",
    "no port": b"PROXY TCP4 192.0.2.1 192.0.2.2  443\r\n",
    "other digits": "PROXY TCP4 192.0.2.1 192.0.2.2 ٣ 443\r\n".encode(),
}
BAD |= {name: (line, "version 1 line", line.index(b"\n") + 1) for name, line in LINES.items()}
BAD["long line"] = (b"PROXY UNKNOWN " + b"x" * 200, "more than 107 bytes", MOST_LINE_BYTES)
BAD["line of 108"] = (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "more than 107 bytes", 107)


@pytest.mark.parametrize(("data", "words", "certain"), BAD.values(), ids=BAD)
def test_invalid_headers(data: bytes, words: str, certain: int) -> None:
    """It is refused as soon as it is certain, for the same reason for any split."""
    outcome = read_header(data)
    assert isinstance(outcome, str)
    assert words in outcome
    assert by_bytes(data) == (outcome, certain)


def test_a_line_of_the_greatest_length() -> None:
    """A header of 107 bytes, CRLF included, is valid."""
    line = b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n"
    assert read_header(line) == Header(None, MOST_LINE_BYTES)


headers = (
    st.sampled_from([*GOOD, *(data for data, _, _ in BAD.values())]).flatmap(
        lambda data: st.tuples(
            st.just(data), st.integers(0, len(data)), st.binary(max_size=3), st.binary(max_size=9)
        )
    )
).map(lambda made: made[0][: made[1]] + made[2] + made[0][made[1] + len(made[2]) :] + made[3])
whole = st.builds(bytes.__add__, st.sampled_from([*GOOD]), st.binary(max_size=9))
blocks = st.builds(
    binary,
    st.sampled_from([0x20, 0x21]),
    st.sampled_from([0x00, 0x11, 0x12, 0x21, 0x22, 0x31]),
    st.binary(max_size=60),
    st.none() | st.integers(0, 5_000),
)


@reaches(0.1)
@given(mostly(whole, st.binary(max_size=300), headers, blocks))
@example(b"")
def test_any_bytes(data: bytes) -> None:
    """Nothing raises; more bytes never change the result; a source is an address."""
    outcome = read_header(data)
    first, _ = by_bytes(data[:300])
    if len(data) <= 300:
        assert first == outcome
    if isinstance(outcome, Header):
        reached()
        assert outcome.length <= len(data)
        assert read_header(data[: outcome.length]) == outcome
        if outcome.source is not None:
            ip, port = outcome.source
            assert str(parse_address(ip)) == ip
            assert 0 <= port <= 65_535
