"""Looks the name of a server up: in the hosts file, in DNS, and else by the system's resolver.

DNS is asked without the system, because `getaddrinfo` does not say how long an answer is valid. The
name servers, search domains and options are those of /etc/resolv.conf, which is read again when it
changes. What only the system knows, such as names by multicast DNS, is asked of it.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway import tasks
from gateway.domain.targets import MOST_TARGETS, Answer, Target, is_one_place, targets_of
from gateway.domain.upstreams import Server
from gateway.files import read_regular

if TYPE_CHECKING:
    import dns.resolver
    from dns.asyncresolver import Resolver as DnsResolver

HOSTS: Final = Path("/etc/hosts")
CONFIGURATION: Final = Path("/etc/resolv.conf")
#: The port of the name servers.
PORT: Final = 53

#: How long the answers of the hosts file and of the system are used.
FILE_TTL_S: Final = 5.0
SYSTEM_TTL_S: Final = 30.0
#: How long all queries for one name may take.
LIFETIME_S: Final = 10.0
_MOST_HOSTS_BYTES: Final = 1024 * 1024
#: Names of one set of SRV records; each is looked up.
MOST_SERVICES: Final = 64
#: For the system's resolver. They are its own: look-ups that hang must not delay what else uses
#: threads, such as reading changed files.
_threads: Final = ThreadPoolExecutor(4, "look-ups")

#: A name that may be in a Host header and in a log line.
_is_host = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_-])?").fullmatch


class Service(NamedTuple):
    """What one SRV record says."""

    priority: int
    host: str
    port: int
    weight: int


class _NotConfigured(Exception):
    """The system has no name servers."""


class Resolver:
    """Looks names up. One object for each process, as it caches the configuration.

    asks_system: for names that DNS does not know. That takes a thread, of which there are few:
                 whoever chooses a name could hold it
    bounds:      the records that are read, as of NameServer; (): its own
    """

    def __init__(
        self,
        hosts: Path | None = None,
        configuration: Path | None = None,
        port: int | None = None,
        *,
        asks_system: bool = True,
        bounds: tuple[int, int] | tuple[()] = (),
    ) -> None:
        self._hosts = HOSTS if hosts is None else hosts
        self._configuration = CONFIGURATION if configuration is None else configuration
        self._port = PORT if port is None else port
        self._asks_system = asks_system
        self._bounds = bounds
        self._dns: DnsResolver | None = None
        self._known: tuple[int, ...] = ()

    async def look_up(self, server: Server) -> Answer:
        """The targets of a server that is given by its name. Raises OSError, if there are none."""
        if server.srv:
            return await self._by_services(server)
        addresses, ttl_s = await self.addresses(server.host, server.port)
        return Answer(targets_of(server, addresses), ttl_s)

    async def _by_services(self, server: Server) -> Answer:
        """The targets that SRV records name (RFC 2782). Some may have no address, but not all."""
        answer = await self.records(server.host, "SRV")
        services = read_services(answer.rrset or () if answer is not None else ())
        if answer is None or not services:
            raise OSError("the name has no SRV records that can be used")
        found = await asyncio.gather(
            # These names are complete: no search domain is added.
            *(self.addresses(f"{each.host}.", each.port) for each in services),
            return_exceptions=True,
        )
        targets: list[Target] = []
        ttl_s = float(answer.chaining_result.minimum_ttl)
        failure: OSError | None = None
        for each, result in zip(services, found, strict=True):
            if len(targets) >= MOST_TARGETS:
                break
            if isinstance(result, OSError):
                failure = OSError(f"{each.host}: {result}")
            elif isinstance(result, BaseException):
                raise result
            else:
                place = server.at(each.host, each.port)
                ttl_s = min(ttl_s, result[1])
                targets += (
                    replace(target, weight=each.weight, priority=each.priority)
                    for target in targets_of(place, result[0])
                )
        if not targets and failure is not None:
            raise failure
        return Answer(tuple(targets[:MOST_TARGETS]), ttl_s)

    async def addresses(self, host: str, port: int) -> tuple[list[str], float]:
        """The addresses of a name, and for how many seconds they may be used. Raises OSError."""
        found = _in_hosts(self._hosts, host)
        if not found and is_one_place(host):
            found = ["127.0.0.1", "::1"]
        if found:
            return found, FILE_TTL_S
        answers = await self._by_dns(host)
        if answers:
            ttl_s = float(min(answer.chaining_result.minimum_ttl for answer in answers))
            found = [rdata.address for answer in answers for rdata in answer.rrset or ()]
        elif self._asks_system:
            ttl_s, found = SYSTEM_TTL_S, await _by_system(host, port)
        else:
            raise OSError("the name has no address")
        return _routed(found, port), ttl_s

    async def _by_dns(self, host: str) -> list[dns.resolver.Answer]:
        """The A and AAAA records, as far as there are any. Raises OSError if DNS fails."""
        asked = (self.records(host, kind) for kind in ("A", "AAAA"))
        results = await asyncio.gather(*asked, return_exceptions=True)
        answers = [each for each in results if each is not None]
        found = [each for each in answers if not isinstance(each, BaseException)]
        for failure in answers:
            # Some servers never answer for AAAA: one kind of address is enough.
            if isinstance(failure, BaseException) and not found:
                raise failure
        return found

    @tasks.cancellable()
    async def records(self, name: str, kind: str) -> dns.resolver.Answer | None:
        """The records of one type; None: there are none. Raises OSError."""
        # Most upstreams are addresses or in the hosts file: they do without these imports of 6 MB.
        import dns.asyncbackend  # noqa: PLC0415
        from dns.exception import DNSException  # noqa: PLC0415
        from dns.resolver import NXDOMAIN, NoAnswer  # noqa: PLC0415

        try:
            return await self._configured().resolve(
                name,
                kind,
                search=True,
                lifetime=LIFETIME_S,
                backend=dns.asyncbackend.get_backend("asyncio"),
            )
        except (NXDOMAIN, NoAnswer, _NotConfigured):
            return None
        except DNSException as error:
            raise OSError(f"DNS: {str(error) or type(error).__name__}") from error

    def _configured(self) -> DnsResolver:
        """DNS as the system is configured now. Raises _NotConfigured."""
        from dns.asyncresolver import Resolver as DnsResolver  # noqa: PLC0415
        from dns.exception import DNSException  # noqa: PLC0415

        from gateway.proxy.name_server import NameServer  # noqa: PLC0415

        known = _signature(self._configuration)
        if self._dns is None or known != self._known:
            resolver = DnsResolver(configure=False)
            try:
                resolver.read_resolv_conf(os.fspath(self._configuration))
            except (OSError, ValueError, DNSException) as error:  # its text may be anything
                raise _NotConfigured from error
            resolver.nameservers = [
                NameServer(str(each), self._port, *self._bounds) for each in resolver.nameservers
            ]
            self._dns, self._known = resolver, known
        return self._dns


def read_services(records: Iterable[Any]) -> list[Service]:
    """The services of SRV records, those with the best priority first.

    A weight of 0 counts as 1. RFC 2782: the target "." says that there is no such service.
    """
    found = set()
    for record in records:
        host = record.target.to_text(omit_final_dot=True).lower()
        if _is_host(host) and record.port:
            found.add(Service(record.priority, host, record.port, max(record.weight, 1)))
    return sorted(found)[:MOST_SERVICES]


def _signature(file: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced; (): there is none."""
    with suppress(OSError):
        stat = file.stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
    return ()


def _in_hosts(file: Path, host: str) -> list[str]:
    """The addresses of a name in a hosts file; []: it is not there."""
    wanted = host.removesuffix(".").lower()
    try:
        text = read_regular(file, _MOST_HOSTS_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if wanted in map(str.lower, names):
            with suppress(ValueError):
                found.append(str(ip_address(address)))
    return found


async def _by_system(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await loop.run_in_executor(_threads, look_up)
    except UnicodeError as error:  # IDNA cannot encode it
        raise OSError(f"{host!r} is not a valid host name") from error
    return [str(address[0]) for *_, address in found]


def _routed(addresses: Iterable[str], port: int) -> list[str]:
    """The addresses that this machine has a route to, or all if it has to none.

    Without it, half of the connections to a name with A and AAAA records would fail on a machine
    that has no IPv6.
    """
    every = list(addresses)
    return [address for address in every if _has_route(address, port)] or every


def _has_route(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    place: tuple[Any, ...] = (address, port)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # chooses a route and sends nothing
    except OSError:
        return False
    return True
