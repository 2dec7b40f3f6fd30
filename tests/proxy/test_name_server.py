"""How much of an answer is read, and how fast."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import dns.flags
import dns.message
import dns.name
import pytest

from gateway.domain.targets import MOST_TARGETS
from gateway.domain.upstreams import Server
from gateway.proxy.name_server import MOST_RECORDS, NameServer, count_records, shortened
from tests.kit.dns_server import ScriptedDns
from tests.kit.listening import Served

QUERY = dns.message.make_query("api.test", "A")


def long_answer(query: dns.message.Message, count: int) -> bytes:
    """An answer with this many addresses, as it is sent."""
    question = query.question[0]
    head = struct.pack("!HHHHHH", query.id, 0x8180, 1, count, 0, 0)
    asked = question.name.to_wire() + struct.pack("!HH", question.rdtype, question.rdclass)
    records = [
        b"\xc0\x0c" + struct.pack("!HHIHI", 1, 1, 0, 4, 0x7F000002 + at) for at in range(count)
    ]
    return head + asked + b"".join(records)


class Long(ScriptedDns):
    """Sends thousands of addresses of each name, by TCP only; its SRV records name 20 others."""

    def answer(self, data: bytes) -> bytes | None:
        super().answer(data)
        response = dns.message.make_response(dns.message.from_wire(data))
        response.flags |= dns.flags.TC
        return response.to_wire()

    def answer_by_tcp(self, data: bytes) -> bytes:
        kind = self.asked[-1][1]
        if kind == "A":
            return long_answer(dns.message.from_wire(data), 4_000)
        return ScriptedDns.answer(self, data) or b""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async def by_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            data = await reader.readexactly(length)
            question = dns.message.from_wire(data).question[0]
            name = question.name.to_text(omit_final_dot=True)
            self.asked.append((name, dns.rdatatype.to_text(question.rdtype)))
            answer = self.answer_by_tcp(data)
            writer.write(struct.pack("!H", len(answer)) + answer)

        async with self, Served(by_tcp, port=self.port):
            yield


async def test_only_the_first_records_are_read(tmp_path: Path) -> None:
    """Each takes time of the event loop: 4,000 of them took 240 ms."""
    dns_server = Long({("api.test", "A"): ["127.0.0.2"]})
    async with dns_server.serving():
        found = await dns_server.resolver(tmp_path).records("api.test", "A")
    assert found is not None
    assert found.rrset is not None
    assert len(found.rrset) == MOST_RECORDS


async def test_services_with_long_answers(tmp_path: Path, delays: list[float]) -> None:
    """All answers together have a bound, too: those of 64 services took 18 s, time after time."""
    services = [f"0 0 80 s{at}.test." for at in range(20)]
    dns_server = Long(
        {("_api._tcp.test", "SRV"): services, **{(f"s{at}.test", "A"): [] for at in range(20)}}
    )
    async with dns_server.serving():
        server = Server("http", "_api._tcp.test", 80, srv=True)
        # One in a second, so that the time of this test counts little.
        resolver = dns_server.resolver(tmp_path, bounds=(MOST_RECORDS, 1))
        answer = await resolver.look_up(server)
    assert len(answer.targets) == MOST_TARGETS
    # Each answer waits for the time that those before it are worth.
    assert max(delays) > 19 * MOST_RECORDS * 0.9


async def test_ordinary_answers_do_not_wait(delays: list[float]) -> None:
    one = NameServer("127.0.0.1", 53)
    for _ in range(50):
        await one._wait(10)
    assert set(delays) == {0.0}


async def test_other_answers_are_not_taken(tmp_path: Path) -> None:
    """Datagrams with another id, or of no DNS, are dropped without reading them."""

    class Noisy(ScriptedDns):
        def answer(self, data: bytes) -> bytes | None:
            wrong = bytes((data[0] ^ 1, data[1])) + data[2:]
            for noise in (b"", b"x", wrong, data[:2]):
                self._transport.sendto(noise, self.client)
            return super().answer(data)

        client: tuple[str, int]

    async with Noisy({("api.test", "A"): ["127.0.0.2"]}) as dns_server:
        protocol = dns_server._transport.get_protocol()
        receive = protocol.datagram_received

        def received(data: bytes, address: tuple[str, int]) -> None:
            dns_server.client = address
            receive(data, address)

        protocol.datagram_received = received
        found = await dns_server.resolver(tmp_path).look_up(Server("http", "api.test", 80))
    assert [target.addresses for target in found.targets] == [("127.0.0.2",)]


def test_what_is_left() -> None:
    """A long message is as one that ends after the first records."""
    data = long_answer(QUERY, MOST_RECORDS + 100)
    short = shortened(data)
    assert count_records(short) == MOST_RECORDS
    assert short == long_answer(QUERY, MOST_RECORDS)
    assert shortened(short) == short
    assert count_records(shortened(data, 16)) == 16
    assert shortened(b"") == b""


@pytest.mark.parametrize("kept", [0, 5, 12, 20, 26, 28, 36, 40])
def test_a_long_message_that_is_cut_off(kept: int) -> None:
    """It has no records that can be read."""
    data = long_answer(QUERY, MOST_RECORDS + 100)[:kept]
    assert count_records(shortened(data)) == 0
