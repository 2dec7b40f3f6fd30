"""Asks one DNS server, and bounds the time that the event loop takes to read its answers.

Whoever answers for a name chooses how long the answer is: up to 64 KB, with thousands of records,
each of which takes some 50 µs to read. So only the first records of an answer are read, and no more
than a number in a second: what is beyond waits.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Final

import dns.exception
import dns.message
import dns.nameserver
import dns.query

#: Records of an answer that are read; twice as many as there are targets, as CNAMEs are among them.
MOST_RECORDS: Final = 512
#: Records that are read in a second, of all answers; as many again after a second without any.
MOST_A_SECOND: Final = 1_000
_HEADER: Final = struct.Struct("!HHHHHH")
_TYPE: Final = struct.Struct("!HHIH")


class NameServer(dns.nameserver.Do53Nameserver):
    """A DNS server, asked by UDP, and by TCP if the answer is too long for that.

    records:  the most of an answer that are read
    a_second: the most of all answers that are read in a second
    """

    def __init__(
        self,
        address: str,
        port: int,
        records: int = MOST_RECORDS,
        a_second: int = MOST_A_SECOND,
    ) -> None:
        super().__init__(address, port)
        self._records = records
        self._a_second = a_second
        self._turn = asyncio.Lock()
        #: When the next answer may be read, by the loop's clock.
        self._next_s = 0.0

    async def async_query(
        self,
        request: dns.message.QueryMessage,
        timeout: float,  # noqa: ASYNC109 - as the base class has it
        source: str | None,
        source_port: int,
        max_size: bool,
        *_: Any,
        **__: Any,
    ) -> dns.message.Message:
        """Send a query and return its answer. max_size: by TCP"""
        ask = self._by_tcp if max_size else self._by_udp
        try:
            async with asyncio.timeout(timeout):
                data = await ask(request.to_wire())
        except TimeoutError as error:
            # dnspython asks a server again after its own exception, but not after an OSError.
            raise dns.exception.Timeout from error
        data = shortened(data, self._records)
        await self._wait(count_records(data))
        response = dns.message.from_wire(data, raise_on_truncation=not max_size)
        if not request.is_response(response):
            raise dns.query.BadResponse
        return response

    async def _by_tcp(self, query: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self.address, self.port)
        try:
            writer.write(struct.pack("!H", len(query)) + query)
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            return await reader.readexactly(length)
        finally:
            writer.transport.abort()

    async def _by_udp(self, query: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(query[:2], answer), remote_addr=(self.address, self.port)
        )
        try:
            transport.sendto(query)
            return await answer
        finally:
            transport.close()

    async def _wait(self, records: int) -> None:
        """Wait until an answer with this many records may be read."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(self._next_s - loop.time(), 0.0))
            self._next_s = max(self._next_s, loop.time() - 1.0) + records / self._a_second


class _Datagrams(asyncio.DatagramProtocol):
    """Takes the first datagram with the query's id; all others are not read."""

    def __init__(self, query_id: bytes, answer: asyncio.Future[bytes]) -> None:
        self._id = query_id
        self._answer = answer

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if data[:2] == self._id and len(data) >= _HEADER.size and not self._answer.done():
            self._answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def count_records(data: bytes) -> int:
    """The records of a message, as its header says."""
    return sum(_HEADER.unpack_from(data)[3:]) if len(data) >= _HEADER.size else 0


def shortened(data: bytes, most: int = MOST_RECORDS) -> bytes:
    """A message without what follows its first records.

    One that is malformed stays as it is, if it has no more records than that; else it has none.
    """
    if count_records(data) <= most:
        return data
    ident, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    kept = min(answers, most)
    at = _HEADER.size
    try:
        for _ in range(questions):
            at = _after_name(data, at) + 4
        for _ in range(kept):
            at = _after_name(data, at)
            at += _TYPE.size + _TYPE.unpack_from(data, at)[3]
    except (IndexError, struct.error):
        kept = 0
    header = _HEADER.pack(ident, flags, questions, kept, 0, 0)
    return header + data[_HEADER.size : at]


def _after_name(data: bytes, at: int) -> int:
    """Where a name ends: with an empty label, or with a pointer to the rest (RFC 1035, 4.1.4)."""
    while (length := data[at]) and length < 0xC0:
        at += 1 + length
    return at + (2 if length else 1)
