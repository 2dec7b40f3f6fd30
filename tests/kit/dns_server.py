"""A scripted DNS server on loopback, and a resolver that is configured to ask it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from gateway.proxy.resolver import Resolver
from tests.kit.ports import free_port


class ScriptedDns:
    """Answers by UDP within its `async with`, as the test says.

    records: by name and type, such as ("api.test", "A"); a name without any does not exist
    ttl_s:   of each record
    failure: SERVFAIL in place of every answer; "silence": nothing in place of them
    silent:  the end of names that get no answer
    asked:   the names and types of all queries, in order
    """

    def __init__(self, records: dict[tuple[str, str], list[str]] | None = None) -> None:
        self.records = {} if records is None else records
        self.ttl_s = 0
        self.failure: int | str | None = None
        self.silent: str | None = None
        self.asked: list[tuple[str, str]] = []
        self.port = 0

    async def __aenter__(self) -> ScriptedDns:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: _Protocol(self), local_addr=("127.0.0.1", free_port())
        )
        self.port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    def answer(self, data: bytes) -> bytes | None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        if self.failure == "silence" or (self.silent is not None and name.endswith(self.silent)):
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if isinstance(self.failure, int):
            response.set_rcode(dns.rcode.Rcode(self.failure))
        elif not any(known == name for known, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif values := self.records.get((name, kind)):
            response.answer.append(
                dns.rrset.from_text_list(question.name, self.ttl_s, "IN", kind, values)
            )
        return response.to_wire()

    def resolver(
        self,
        folder: Path,
        *,
        hosts: str = "",
        search: str = "",
        more: str = "",
        **options: Any,
    ) -> Resolver:
        """A resolver with files of its own."""
        (folder / "hosts").write_text(hosts)
        lines = ["nameserver 127.0.0.1", f"search {search}" if search else "", more]
        (folder / "resolv.conf").write_text("\n".join(lines) + "\n")
        return Resolver(folder / "hosts", folder / "resolv.conf", self.port, **options)


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, server: ScriptedDns) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        response = self._server.answer(data)
        if response is not None:
            self._transport.sendto(response, address)
