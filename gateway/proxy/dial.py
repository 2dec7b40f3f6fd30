"""Connects to a server: tries its addresses, verifies TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TypeVar

from gateway.domain.targets import Target
from gateway.domain.upstreams import Server, Trust
from gateway.files import check_regular, load_pair, reason_of
from gateway.proxy.tls import TlsTransport

log = logging.getLogger("gateway.upstream")

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


async def dial(
    factory: Callable[[], _Protocol],
    target: Target,
    tls: ssl.SSLContext | None,
    timeout_s: float,
) -> tuple[asyncio.Transport, _Protocol]:
    """Connect to the first of the target's addresses that can be reached. Raises OSError.

    An address that does not respond uses only its share of the time.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    server, addresses = target.server, target.addresses
    failure = OSError(f"{server.host} has no address")
    async with asyncio.timeout_at(end):
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
    # The certificate must be for the name that the server gets as Host, if the policy says which:
    # never for one that a client sends, who could then choose the certificate that is accepted.
    transport = TlsTransport(tls, protocol, server=server.tls_name, opened=opened)
    await loop.create_connection(lambda: transport, address, server.port)
    try:
        await opened
    except BaseException:
        transport.abort()
        raise
    return transport, protocol


def tls_context(trust: Trust) -> ssl.SSLContext:
    """Return a context for an upstream's servers, with these files.

    If they cannot be used, the context trusts no certificate: the server cannot be used, and the
    rest of the gateway works.
    """
    try:
        context = open_context(trust)
    except OSError as error:
        log.error(
            "%s cannot be used; trusting no certificate: %s",
            *(" and ".join(trust.files) or "the system's authorities", reason_of(error)),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    return context


def open_context(trust: Trust) -> ssl.SSLContext:
    """The context for these files, without `ca` for the system's authorities. Raises OSError."""
    if trust.ca is not None:
        check_regular(trust.ca)
    context = ssl.create_default_context(cafile=trust.ca)
    if trust.client_certificate is not None and trust.client_key is not None:
        load_pair(context, trust.client_certificate, trust.client_key)
    return context
