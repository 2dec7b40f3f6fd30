"""Look-ups of names: the hosts file, DNS with its time to live and search domains, the system."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import pytest

from gateway.domain.upstreams import Server
from gateway.proxy import resolver as module
from gateway.proxy.resolver import FILE_TTL_S, SYSTEM_TTL_S, Resolver
from tests.kit.dns_server import ScriptedDns
from tests.kit.eventually import eventually
from tests.kit.listening import Served
from tests.kit.wire import TIMEOUT_S


async def found(resolver: Resolver, host: str) -> tuple[list[str], float]:
    answer = await resolver.look_up(Server("http", host, 80))
    return [address for target in answer.targets for address in target.addresses], answer.ttl_s


@pytest.fixture
def no_system(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The system's resolver knows nothing; returns what it is asked for."""
    asked: list[str] = []

    async def unknown(host: str, port: int) -> list[str]:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(module, "_by_system", unknown)
    return asked


async def test_all_addresses_of_both_kinds(tmp_path: Path) -> None:
    """A and AAAA records, with the shortest time to live."""
    records = {("api.test", "A"): ["127.0.0.2", "127.0.0.3"], ("api.test", "AAAA"): ["::1"]}
    async with ScriptedDns(records) as dns_server:
        dns_server.ttl_s = 77
        resolver = dns_server.resolver(tmp_path)
        addresses, ttl_s = await found(resolver, "API.test.")
        # A machine without IPv6 has no route to ::1, and leaves it out.
        assert [each for each in addresses if each != "::1"] == ["127.0.0.2", "127.0.0.3"]
        assert ttl_s == 77.0
        assert set(dns_server.asked) == {("api.test", "A"), ("api.test", "AAAA")}


async def test_names_of_the_hosts_file(tmp_path: Path) -> None:
    """They need no DNS, and a change of the file is seen."""
    async with ScriptedDns() as dns_server:
        hosts = (
            "# 127.0.0.9 api\n127.0.0.2\tdb API # api\n::1 api\nbroken api\n127.0.0.3 other api\n"
        )
        resolver = dns_server.resolver(tmp_path, hosts=hosts)
        assert await found(resolver, "api") == (["127.0.0.2", "127.0.0.3", "::1"], FILE_TTL_S)
        (tmp_path / "hosts").write_text("127.0.0.7 api\n")
        assert await found(resolver, "api.") == (["127.0.0.7"], FILE_TTL_S)
        assert await found(resolver, "localhost") == (["127.0.0.1", "::1"], FILE_TTL_S)
        os.unlink(tmp_path / "hosts")
        assert await found(resolver, "x.localhost") == (["127.0.0.1", "::1"], FILE_TTL_S)
        assert dns_server.asked == []


async def test_search_domains(tmp_path: Path) -> None:
    """As in a Kubernetes pod: the short name of a service, and one with its namespace."""
    records = {("api.shop.svc.cluster.local", "A"): ["127.0.0.5"]}
    domains = "shop.svc.cluster.local svc.cluster.local cluster.local"
    async with ScriptedDns(records) as dns_server:
        resolver = dns_server.resolver(tmp_path, search=domains, more="options ndots:5")
        for host in ("api", "api.shop", "api.shop.svc", "api.shop.svc.cluster.local"):
            assert (await found(resolver, host))[0] == ["127.0.0.5"], host


async def test_a_changed_configuration_is_used(tmp_path: Path) -> None:
    """resolv.conf is read again when it changes; laptops and containers change networks."""
    records = {("api.one.test", "A"): ["127.0.0.1"], ("api.other.test", "A"): ["127.0.0.2"]}
    async with ScriptedDns(records) as dns_server:
        resolver = dns_server.resolver(tmp_path, search="one.test")
        assert (await found(resolver, "api"))[0] == ["127.0.0.1"]
        dns_server.resolver(tmp_path, search="other.test")
        assert (await found(resolver, "api"))[0] == ["127.0.0.2"]


@pytest.mark.parametrize(
    "conf", [None, "", "nameserver nonsense\n", "search a.test\n", "search a..b\nnameserver ::1"]
)
async def test_without_a_name_server(
    tmp_path: Path, no_system: list[str], conf: str | None
) -> None:
    """The system is asked, and its words are the error."""
    if conf is not None:
        (tmp_path / "resolv.conf").write_text(conf)
    resolver = Resolver(tmp_path / "hosts", tmp_path / "resolv.conf")
    with pytest.raises(OSError, match="not known"):
        await found(resolver, "api.test")


async def test_what_only_the_system_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that DNS does not have may be one of multicast DNS."""

    async def known(host: str, port: int) -> list[str]:
        return ["127.0.0.6"]

    monkeypatch.setattr(module, "_by_system", known)
    async with ScriptedDns() as dns_server:
        answer = await found(dns_server.resolver(tmp_path), "printer.local")
        assert answer == (["127.0.0.6"], SYSTEM_TTL_S)


async def test_the_systems_resolver() -> None:
    """It knows localhost; an invalid name is an OSError."""
    assert set(await module._by_system("localhost", 80)) & {"127.0.0.1", "::1"}
    with pytest.raises(OSError, match="not a valid host name"):
        await module._by_system("a" * 64 + ".test", 80)


async def test_a_system_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its look-ups hold no thread that others need: changed files are read in one, for example."""
    end = threading.Event()

    def hang(*_: object, **__: object) -> None:
        end.wait(TIMEOUT_S)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with ScriptedDns() as dns_server:
        resolver = dns_server.resolver(tmp_path)
        tasks = [asyncio.create_task(found(resolver, f"n{at}.test")) for at in range(64)]
        await eventually(lambda: len(dns_server.asked) >= 128, "all queries")
        try:
            async with asyncio.timeout(TIMEOUT_S / 2):
                assert await asyncio.to_thread(lambda: "read") == "read"
        finally:
            end.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {socket.gaierror}


@pytest.mark.parametrize("failure", [dns.rcode.SERVFAIL, dns.rcode.REFUSED, "silence"])
async def test_dns_that_fails(
    tmp_path: Path, no_system: list[str], monkeypatch: pytest.MonkeyPatch, failure: int | str
) -> None:
    """A failure of DNS is an OSError in words, and the system is not asked: it would wait again."""
    monkeypatch.setattr(module, "LIFETIME_S", 0.2)
    async with ScriptedDns() as dns_server:
        dns_server.failure = failure
        with pytest.raises(OSError, match=r"^DNS: "):
            await found(dns_server.resolver(tmp_path), "api.test")
    assert no_system == []


@pytest.mark.parametrize("host", ["a" * 64 + ".test", ".".join(["a" * 60] * 6), "a..test", "."])
async def test_names_that_cannot_be(tmp_path: Path, no_system: list[str], host: str) -> None:
    """The policy's check of names is not as strict as DNS; such a name is an OSError."""
    async with ScriptedDns() as dns_server:
        with pytest.raises(OSError):
            await found(dns_server.resolver(tmp_path), host)


async def test_one_kind_of_address_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers answer for A, and fail for AAAA."""
    monkeypatch.setattr(module, "LIFETIME_S", 0.2)

    class OnlyA(ScriptedDns):
        def answer(self, data: bytes) -> bytes | None:
            response = super().answer(data)
            return response if self.asked[-1][1] == "A" else None

    async with OnlyA({("api.test", "A"): ["127.0.0.2"]}) as dns_server:
        assert (await found(dns_server.resolver(tmp_path), "api.test"))[0] == ["127.0.0.2"]


async def test_garbage_in_place_of_an_answer(
    tmp_path: Path, no_system: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datagrams that are no DNS are an OSError."""
    monkeypatch.setattr(module, "LIFETIME_S", 0.2)

    class Hostile(ScriptedDns):
        def answer(self, data: bytes) -> bytes | None:
            super().answer(data)
            return data[:2] + b"\xff" * 40

    async with Hostile() as dns_server:
        with pytest.raises(OSError, match=r"^DNS: "):
            await found(dns_server.resolver(tmp_path), "api.test")


def test_addresses_without_a_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left out, unless there are no others."""
    routed: set[str] = {"10.0.0.1"}

    def has_route(address: str, port: int) -> bool:
        return address in routed

    monkeypatch.setattr(module, "_has_route", has_route)
    assert module._routed(["2001:db8::1", "10.0.0.1"], 80) == ["10.0.0.1"]
    routed.clear()
    assert module._routed(["2001:db8::1", "10.0.0.1"], 80) == ["2001:db8::1", "10.0.0.1"]


def test_routes() -> None:
    """Loopback has one; asking sends nothing."""
    assert module._has_route("127.0.0.1", 80)
    assert not module._has_route("not an address", 80)


async def test_the_machines_own_files() -> None:
    """Without arguments, they are those of this machine: it knows localhost."""
    addresses, _ = await asyncio.wait_for(found(Resolver(), "localhost"), 20)
    assert "127.0.0.1" in addresses


# -- SRV records -----------------------------------------------------------------------------------
SRV = Server("http", "_api._tcp.test", 80, srv=True)


async def test_services(tmp_path: Path) -> None:
    """Each target's addresses, with port, weight and priority of the record; the shortest TTL."""
    records = {
        ("_api._tcp.test", "SRV"): ["1 0 80 spare.test.", "0 60 8080 a.test.", "0 40 9090 A.test."],
        ("a.test", "A"): ["127.0.0.2", "127.0.0.3"],
        ("spare.test", "A"): ["127.0.0.4"],
    }
    async with ScriptedDns(records) as dns_server:
        dns_server.ttl_s = 9
        resolver = dns_server.resolver(
            tmp_path, search="example.test", hosts="127.0.0.5 spare.test"
        )
        answer = await resolver.look_up(SRV)
        assert [(each.label, each.weight, each.priority) for each in answer.targets] == [
            ("a.test:8080 (127.0.0.2)", 60, 0),
            ("a.test:8080 (127.0.0.3)", 60, 0),
            ("a.test:9090 (127.0.0.2)", 40, 0),
            ("a.test:9090 (127.0.0.3)", 40, 0),
            ("spare.test (127.0.0.5)", 1, 1),
        ]
        assert answer.ttl_s == FILE_TTL_S
        # RFC 2782: targets are complete names.
        assert ("a.test.example.test", "A") not in dns_server.asked


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ({}, "no SRV records"),
        ({("_api._tcp.test", "A"): ["127.0.0.1"]}, "no SRV records"),
        ({("_api._tcp.test", "SRV"): ["0 0 80 ."]}, "no SRV records"),
        ({("_api._tcp.test", "SRV"): ["0 0 0 a.test."]}, "no SRV records"),
        ({("_api._tcp.test", "SRV"): [r"0 0 80 a\032b\013.test."]}, "no SRV records"),
        ({("_api._tcp.test", "SRV"): ["0 0 80 a.test."]}, "^a.test: "),
    ],
)
async def test_services_that_cannot_be_used(
    tmp_path: Path, no_system: list[str], records: dict[tuple[str, str], list[str]], words: str
) -> None:
    """No records, no service, a name that would end a header line, a name without an address."""
    async with ScriptedDns(records) as dns_server:
        with pytest.raises(OSError, match=words):
            await dns_server.resolver(tmp_path).look_up(SRV)


async def test_a_service_without_an_address(tmp_path: Path, no_system: list[str]) -> None:
    """The other ones are used."""
    records = {
        ("_api._tcp.test", "SRV"): ["0 1 80 a.test.", "0 1 80 gone.test."],
        ("a.test", "A"): ["127.0.0.2"],
    }
    async with ScriptedDns(records) as dns_server:
        answer = await dns_server.resolver(tmp_path).look_up(SRV)
        assert [each.server.host for each in answer.targets] == ["a.test"]


async def test_too_many_services(tmp_path: Path) -> None:
    """Of hundreds of records only the best are looked up."""
    services = [f"{at} 1 {at + 1} localhost." for at in range(20)]
    async with ScriptedDns({("_api._tcp.test", "SRV"): services}) as dns_server:
        answer = await dns_server.resolver(tmp_path).look_up(SRV)
        assert [each.server.port for each in answer.targets] == [at + 1 for at in range(20)]
        found = await dns_server.resolver(tmp_path).records("_api._tcp.test", "SRV")
        assert found is not None
        many = [record for _ in range(9) for record in found.rrset or ()]
        assert len(module.read_services(many)) == 20


async def test_an_answer_that_is_too_long_for_udp(tmp_path: Path) -> None:
    """It is asked for again by TCP."""
    records = {("api.test", "A"): [f"127.0.{at >> 8}.{at & 255}" for at in range(2, 202)]}

    class Truncating(ScriptedDns):
        def answer(self, data: bytes) -> bytes | None:
            response = dns.message.from_wire(super().answer(data) or b"")
            response.flags |= dns.flags.TC
            response.answer = []
            return response.to_wire()

    async with Truncating(records) as dns_server:

        async def by_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            answer = ScriptedDns.answer(dns_server, await reader.readexactly(length)) or b""
            writer.write(struct.pack("!H", len(answer)) + answer)

        async with Served(by_tcp, port=dns_server.port):
            assert len((await found(dns_server.resolver(tmp_path), "api.test"))[0]) == 200
