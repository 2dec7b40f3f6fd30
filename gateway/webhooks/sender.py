"""Sends one delivery: a POST to an address that was judged, with an answer of which little is read.

The address is judged when it is dialled, whether it is written in the URL or is what a name means
at that moment: a name may have another address at its second look-up.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict

from gateway.domain.patterns import printable
from gateway.domain.webhooks.destinations import Destinations

CONNECT_S: Final = 5.0
#: Of an attempt, to the last byte of the answer that is read.
TOTAL_S: Final = 15.0
#: The most bytes of an answer that are read, and the most characters that are kept.
MOST_READ: Final = 2 * 1024
MOST_KEPT: Final = 256
#: What is said of an address that is not allowed: which one it is would tell about the network.
REFUSED: Final = "the address of this host is not allowed"


class _Refused(OSError):
    """An address that deliveries may not go to."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, REFUSED)


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

    tls:      for tests; else the system's authorities are trusted
    resolver: for tests
    """

    def __init__(
        self,
        destinations: Callable[[], Destinations],
        *,
        tls: ssl.SSLContext | None = None,
        resolver: AbstractResolver | None = None,
        total_s: float = TOTAL_S,
        connect_s: float = CONNECT_S,
    ) -> None:
        self._destinations = destinations
        self._tls = tls
        self._resolver = resolver
        self._total_s = total_s
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=True if self._tls is None else self._tls,
            resolver=self._resolver,
            # A name is looked up for each connection: its address may have changed on purpose.
            use_dns_cache=False,
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            trace_configs=[trace],
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One attempt. Raises nothing: what went wrong is the answer."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._total_s):
                status, found, retry_after_s = await self._post(url, body, headers)
        except TimeoutError:
            found = f"no complete answer within {self._total_s:g} s"
            status, retry_after_s = 0, None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            status, found, retry_after_s = 0, _reason(error), None
        return Answer(status, round((time.monotonic() - began) * 1000), found, retry_after_s)

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, str, float | None]:
        use = SimpleNamespace(reused=False)
        try:
            return await self._post_once(url, body, headers, use)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # A kept connection that its server has closed meanwhile: nobody has read the request.
            if not use.reused:
                raise
            return await self._post_once(url, body, headers, use)

    async def _post_once(
        self, url: str, body: bytes, headers: Mapping[str, str], use: SimpleNamespace
    ) -> tuple[int, str, float | None]:
        assert self._session is not None
        use.reused = False
        async with self._session.post(
            url,
            data=body,
            headers=CIMultiDict({**headers, "Accept-Encoding": "identity"}),
            allow_redirects=False,
            trace_request_ctx=use,
        ) as response:
            found = bytearray()
            try:
                while len(found) < MOST_READ:
                    part = await response.content.read(MOST_READ - len(found))
                    if not part:
                        break
                    found += part
            finally:
                _abort(response)
            return (
                response.status,
                printable(found.decode("utf-8", "replace"))[:MOST_KEPT],
                _retry_after_s(response.headers.get("Retry-After", "")),
            )

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """The socket for an address, which is the last moment to refuse it."""
        family, kind, protocol, _, where = address
        host = str(where[0]).partition("%")[0]
        if not self._destinations().admit(ip_address(host)):
            raise _Refused
        return socket.socket(family, kind, protocol)


def _abort(response: aiohttp.ClientResponse) -> None:
    """End the connection, unless the whole answer was read.

    Closing it would wait for the other end's farewell by TLS, and read all that comes before.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _note_reuse(_session: object, context: SimpleNamespace, _: object) -> None:
    context.trace_request_ctx.reused = True


def _reason(error: Exception) -> str:
    """Why there was no answer, without addresses of this network."""
    if isinstance(error, _Refused) or REFUSED in str(error):
        return REFUSED
    if isinstance(error, aiohttp.InvalidURL):
        return "the URL is not valid"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host has no address"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the certificate is not valid for this host"
    if isinstance(error, aiohttp.ClientSSLError):
        return "the TLS handshake failed"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "the connection could not be made in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "the connection was refused"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return "the connection was closed before an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer ended early"
    return "the answer is not valid HTTP"


def _retry_after_s(value: str) -> float | None:
    """RFC 9110, 10.2.3: seconds or a date; None: neither."""
    if value.isascii() and value.isdigit():
        return float(value[:10])
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
