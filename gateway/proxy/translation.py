"""An upstream's answer with the client's places, on routes that ask for it."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.hosts import host_name
from gateway.domain.translation import Places, Translation, translated
from gateway.domain.upstreams import Server
from gateway.http1.response import ResponseHead
from gateway.proxy.request import Request


def translated_head(
    request: Request, head: ResponseHead, server: Server, what: Translation
) -> ResponseHead:
    """The head of an answer of this server."""
    lines = translated(head.forward, what, places_of(request, server))
    return head if lines == head.forward else replace(head, forward=lines)


def places_of(request: Request, server: Server) -> Places:
    """What the server may call itself: its authority, the Host that it got, and the client's."""
    asked = request.fields.host.lower()
    known = [server.authority.encode("ascii"), server.asked.encode("ascii"), asked]
    authorities = {
        name
        for host in known
        if host
        for name in (host, host.removesuffix(b":80"), host.removesuffix(b":443"))
    }
    return Places(
        authorities,
        {host_name(host) for host in known if host} - {b""},
        server.path.encode("ascii"),
        request.route.rewrite,
        host_name(asked),
    )
