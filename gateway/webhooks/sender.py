"""Sends one delivery: a POST to an address that was judged, with an answer of which little is read.

The address is judged when it is dialled, whether it is written in the URL or is what a name means
at that moment: a name may have another address at its second look-up.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ipaddress import ip_address
from math import inf
from typing import Final, Self
from urllib.parse import quote, urlsplit

from gateway.domain.networks import Address
from gateway.domain.patterns import printable
from gateway.domain.targets import Target, literal
from gateway.domain.upstreams import Server
from gateway.domain.webhooks.destinations import Destinations
from gateway.proxy.dial import dial
from gateway.webhooks.endpoint import (
    Closed,
    EndedEarly,
    EndpointConnection,
    NotHttp,
    Reply,
)
from gateway.webhooks.names import Names, NoAnswer

CONNECT_S: Final = 5.0
#: Of an attempt, to the last byte of the answer that is read.
TOTAL_S: Final = 15.0
#: The most characters of an answer that are kept.
MOST_KEPT: Final = 256
#: How long a connection is kept for the next delivery, and how many are.
IDLE_S: Final = 15.0
MOST_IDLE: Final = 1024
_SWEEP_S: Final = 5.0
#: What is said of an address that is not allowed: which one it is would tell about the network.
REFUSED: Final = "the address of this host is not allowed"
#: What is not changed in a path or query: all that RFC 3986 has, and what is escaped already.
_SAFE: Final = "/?:@!$&'()*+,;=-._~%"
#: The longest date that is read, in characters; those of HTTP have up to 33.
_MOST_DATE: Final = 64

#: The addresses of a name. Raises OSError.
Resolve = Callable[[str], Awaitable[Sequence[str]]]


class _NotSent(Exception):
    """There was no connection; the message says why, without addresses of this network."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Of a URL. origin: whom connections are shared with; start: of the request's head"""

    server: Server
    origin: str
    start: str


@dataclass(frozen=True, slots=True)
class Answer:
    """How an attempt ended.

    status: of the answer; 0: there was none
    ms:     how long it took
    found:  the first characters of the answer, or why there was none
    retry_after_s: what the answer asks for
    """

    status: int
    ms: int
    found: str
    retry_after_s: float | None = None


class Sender:
    """The HTTP client of a courier, as an async context manager.

    tls:     returns what is trusted now: no connection is used again that was made with what was
             trusted before; else the system's authorities are trusted
    resolve: for tests
    """

    def __init__(
        self,
        destinations: Callable[[], Destinations],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        resolve: Resolve | None = None,
        total_s: float = TOTAL_S,
        connect_s: float = CONNECT_S,
    ) -> None:
        self._destinations = destinations
        self._tls = _always(ssl.create_default_context()) if tls is None else tls
        self._resolve = Names().of if resolve is None else resolve
        self._total_s = total_s
        self._connect_s = connect_s
        #: Kept connections by their origin, the last used at the end.
        self._idle: dict[str, list[EndpointConnection]] = {}
        self._kept = 0
        self._is_open = True
        self._sweep: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._close_idle(inf)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One attempt. Raises nothing: what went wrong is the answer."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        status, retry_after_s = 0, None
        try:
            place = _place_of(url)
            head = _head(place.start, len(body), headers)
            async with asyncio.timeout(self._total_s):
                reply = await self._post(place, head, body)
        except TimeoutError:
            found = f"no complete answer within {self._total_s:g} s"
        except ValueError:
            found = "the URL is not valid"
        except _NotSent as error:
            found = str(error)
        except (Closed, ConnectionError):
            found = "the connection was closed before an answer"
        except EndedEarly:
            found = "the answer ended early"
        except NotHttp:
            found = "the answer is not valid HTTP"
        else:
            status = reply.status
            found = printable(reply.body.decode("utf-8", "replace"))[:MOST_KEPT]
            retry_after_s = _retry_after_s(reply.retry_after)
        return Answer(status, round((loop.time() - began) * 1000), found, retry_after_s)

    async def _post(self, place: _Place, head: bytes, body: bytes) -> Reply:
        kept = self._take(place.origin)
        if kept is not None:
            # Closed: its server had closed it meanwhile, and nobody has read the request.
            with suppress(Closed):
                return await self._ask(place, kept, head, body)
        return await self._ask(place, await self._connect(place.server), head, body)

    async def _ask(
        self, place: _Place, connection: EndpointConnection, head: bytes, body: bytes
    ) -> Reply:
        reply = await connection.ask(head, body)
        if connection.is_usable:
            self._keep(place.origin, connection)
        return reply

    # -- connections ------------------------------------------------------------------------------

    async def _connect(self, server: Server) -> EndpointConnection:
        """A new connection to an address that deliveries may go to. Raises _NotSent."""
        try:
            found = await self._addresses(server)
        except (NoAnswer, TimeoutError) as error:
            raise _NotSent("DNS did not answer in time") from error
        except OSError as error:
            raise _NotSent("the host has no address") from error
        terms = destinations, tls = self._destinations(), self._tls()
        admitted = tuple(each for each in found if destinations.admit(_address(each)))
        if not admitted:
            raise _NotSent(REFUSED)
        target = Target(server, admitted)
        is_secure = server.scheme == "https"
        try:
            _, connection = await dial(
                EndpointConnection, target, tls if is_secure else None, self._connect_s
            )
        except ssl.SSLCertVerificationError as error:
            raise _NotSent("the certificate is not valid for this host") from error
        except ssl.SSLError as error:
            raise _NotSent("the TLS handshake failed") from error
        except TimeoutError as error:
            raise _NotSent("the connection could not be made in time") from error
        except OSError as error:
            raise _NotSent("the connection was refused") from error
        connection.terms = terms
        return connection

    async def _addresses(self, server: Server) -> Sequence[str]:
        return (server.host,) if literal(server) else await self._resolve(server.host)

    def _take(self, origin: str) -> EndpointConnection | None:
        idle, terms = self._idle.get(origin), (self._destinations(), self._tls())
        while idle:
            connection = idle.pop()
            self._kept -= 1
            if connection.is_usable and connection.terms == terms:
                return connection
            connection.transport.abort()
        return None

    def _keep(self, origin: str, connection: EndpointConnection) -> None:
        if self._kept >= MOST_IDLE or not self._is_open:
            connection.transport.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(origin, []).append(connection)
        self._kept += 1
        if self._sweep is None:
            self._sweep = loop.call_later(_SWEEP_S, self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        self._close_idle(loop.time() - IDLE_S)
        if self._idle:
            self._sweep = loop.call_later(_SWEEP_S, self._sweep_idle)

    def _close_idle(self, before: float) -> None:
        """Close those that have been kept since before then."""
        for origin, idle in list(self._idle.items()):
            while idle and idle[0].idle_since < before:
                idle.pop(0).transport.abort()
                self._kept -= 1
            if not idle:
                del self._idle[origin]


def _always(context: ssl.SSLContext) -> Callable[[], ssl.SSLContext]:
    return lambda: context


@lru_cache(4096)
def _place_of(url: str) -> _Place:
    """Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    server = Server(parts.scheme, parts.hostname, port)
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += f"?{quote(parts.query, safe=_SAFE)}"
    start = f"POST {target} HTTP/1.1\r\nHost: {server.authority}\r\n"
    return _Place(server, f"{server.scheme} {server.authority}", start)


def _address(text: str) -> Address:
    """Without its zone, as of fe80::1%eth0."""
    return ip_address(text.partition("%")[0])


def _head(start: str, length: int, headers: Mapping[str, str]) -> bytes:
    """Of a request. Raises ValueError for a header that has control characters."""
    if not "".join(headers.values()).isprintable():
        raise ValueError("a control character in a header")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    head = f"{start}{lines}Accept-Encoding: identity\r\nContent-Length: {length}\r\n\r\n"
    return head.encode("ascii")


def _retry_after_s(value: str) -> float | None:
    """RFC 9110, 10.2.3: seconds or a date; None: neither."""
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:10])
    if len(value) > _MOST_DATE:
        return None
    try:
        when = parsedate_to_datetime(value)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):  # the year, or the zone, may be any number
        return None
