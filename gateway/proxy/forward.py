"""Builds the request for an upstream from the parsed values, never from the client's bytes."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error

from gateway.domain.key_format import holds_key
from gateway.domain.policy import Server
from gateway.http1.head import Fields
from gateway.http1.websocket import handshake_lines
from gateway.proxy.request import Request, variables


def request_head(request: Request, server: Server) -> bytes:
    """The head, its empty line included, for one of the upstream's servers."""
    fields, client, grant = request.fields, request.client, request.grant
    if fields.chunked:
        framing = b"Transfer-Encoding: chunked\r\n"
    elif fields.length is not None:
        framing = b"Content-Length: %d\r\n" % fields.length
    else:
        framing = b""
    requested = request.requested
    line = requested.forward_line
    if server.path:
        line = line.replace(b" ", b" %b" % server.path.encode("ascii"), 1)
    if fields.websocket is not None and (key := request.websocket_key):
        framing = handshake_lines(key)
    forward = fields.forward
    if client.is_trusted:
        described, asked = client.forwarded_lines(fields), b""
    else:
        described, asked = client.forwarded, fields.asked
    edits = requested.edits
    if edits is not None:
        values = variables(request) if edits.has_variables else {}
        forward = edits.without(forward) + edits.added(values)
        described, asked = edits.without(described), edits.without(asked)
    if server.asked:
        # The client's Host is the first line, if there is one.
        others = forward.partition(b"\r\n")[2] if fields.host else forward
        forward = b"Host: %b\r\n%b" % (server.asked.encode("ascii"), others)
    elif not fields.host:
        # HTTP/1.0 clients may omit it; HTTP/1.1 servers require it.
        forward = b"Host: %b\r\n%b" % (server.authority.encode("ascii"), forward)
    return b"%b%b%b%b%b%bX-Request-Id: %b\r\n%b\r\n" % (
        line,
        forward,
        _authorization(fields) if request.route.auth == "none" else b"",
        described,
        asked,
        b"" if grant is None else grant.identity,
        request.request_id,
        framing,
    )


def _authorization(fields: Fields) -> bytes:
    """Authorization, for routes without a key: it is for the upstream. A key is never forwarded.

    `curl --user KEY:` sends one in base64.
    """
    line = fields.authorization
    if not line or holds_key(line):
        return b""
    scheme, _, rest = line.removeprefix(b"Authorization: ").partition(b" ")
    if scheme.lower() == b"basic" and holds_key(_decoded(rest.strip())):
        return b""
    return line


def _decoded(text: bytes) -> bytes:
    """Decode base64, up to the last whole group; b"" if it is invalid."""
    try:
        return b64decode(text[: len(text) // 4 * 4])
    except Base64Error:
        return b""
