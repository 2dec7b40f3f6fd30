"""Connects to a server: looks its name up, tries its addresses, verifies TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.domain.policy import Server
from gateway.files import check_regular
from gateway.proxy.tls import TlsTransport

log = logging.getLogger("gateway.upstream")

#: Returns a host's addresses in the order in which to try them. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver, each time: the next connection finds a server that has moved."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [host]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # IDNA cannot encode it
        raise OSError(f"{host!r} is not a valid host name") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def dial(
    factory: Callable[[], _Protocol],
    server: Server,
    tls: ssl.SSLContext | None,
    resolve: Resolve,
    timeout_s: float,
) -> tuple[asyncio.Transport, _Protocol]:
    """Connect to the first of the server's addresses that can be reached. Raises OSError.

    An address that does not respond uses only its share of the time.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    failure = OSError(f"{server.host} has no address")
    async with asyncio.timeout_at(end):
        addresses = await resolve(server.host, server.port)
        for index, address in enumerate(addresses):
            share_s = (end - loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share_s):
                    if tls is None:
                        return await loop.create_connection(factory, address, server.port)
                    return await _connect_tls(factory(), address, server, tls)
            except OSError as error:  # TimeoutError and SSLError are subclasses
                failure = error
    raise failure


async def _connect_tls(
    protocol: _Protocol, address: str, server: Server, tls: ssl.SSLContext
) -> tuple[asyncio.Transport, _Protocol]:
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[None] = loop.create_future()
    # The certificate must be for the host name of the policy.
    transport = TlsTransport(tls, protocol, server=server.host, opened=opened)
    await loop.create_connection(lambda: transport, address, server.port)
    try:
        await opened
    except BaseException:
        transport.abort()
        raise
    return transport, protocol


def tls_context(ca: str | None) -> ssl.SSLContext:
    """Return a context that verifies servers by these authorities (a PEM file), or the system's.

    If they cannot be read, the context trusts no certificate: the server cannot be used, and the
    rest of the gateway works.
    """
    try:
        if ca is not None:
            check_regular(ca)
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        log.error("authorities %s cannot be read; trusting no certificate: %s", ca, error)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    return context
