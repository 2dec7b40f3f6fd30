"""Builds the request for an upstream from the parsed values, never from the client's bytes."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error

from gateway.domain.key_format import holds_key
from gateway.domain.upstreams import Server
from gateway.http1.head import Fields
from gateway.http1.websocket import handshake_lines
from gateway.proxy.request import Request, variables


def request_head(request: Request, server: Server, forward: bytes = b"") -> bytes:
    """The head, its empty line included, for one of the upstream's servers.

    forward: the client's field lines; by default those of its `Fields`
    """
    fields, client, grant = request.fields, request.client, request.grant
    requested = request.requested
    forward = forward or fields.forward
    if client.is_trusted:
        described, asked = client.forwarded_lines(fields), b""
    else:
        described, asked = client.forwarded, fields.asked
    edits = requested.edits
    if edits is not None:
        values = variables(request) if edits.has_variables else {}
        forward = edits.without(forward) + edits.added(values)
        described, asked = edits.without(described), edits.without(asked)
    if server.asked or not fields.host:
        forward = with_host(forward, fields, server)
    line = requested.forward_line
    if fields.bare:
        framing = b""
    elif fields.length is not None:
        framing = b"Content-Length: %d\r\n" % fields.length
    else:
        framing = _framing(request, fields)
    return b"%b%b%b%b%b%b%bX-Request-Id: %b\r\n%b\r\n" % (
        line if not server.path else _below(server.path, line),
        forward,
        _authorization(fields) if request.route.auth == "none" else b"",
        described,
        asked,
        b"" if grant is None else grant.identity,
        server.lines,
        request.request_id,
        framing,
    )


def _below(path: str, line: bytes) -> bytes:
    """The request line, with its path below a server's base path."""
    return line.replace(b" ", b" %b" % path.encode("ascii"), 1)


def with_host(lines: bytes, fields: Fields, server: Server) -> bytes:
    """The field lines, with the Host that the server gets.

    HTTP/1.0 clients may omit it; HTTP/1.1 servers require it.
    """
    # The client's is the first line, if there is one.
    others = lines.partition(b"\r\n")[2] if fields.host else lines
    return b"Host: %b\r\n%b" % ((server.asked or server.authority).encode("ascii"), others)


def _framing(request: Request, fields: Fields) -> bytes:
    """The lines of a body without a length, or of a WebSocket handshake, which has no body."""
    if fields.websocket is not None and (key := request.websocket_key):
        return handshake_lines(key)
    return b"Transfer-Encoding: chunked\r\n" if fields.chunked else b""


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


def binds_connection(line: bytes) -> bool:
    """Does an Authorization line identify its client for all that follows on the connection?

    By NTLM, and with many servers by Negotiate (RFC 4559, 6). line: b"": there is none
    """
    return line[15:].lower().startswith((b"ntlm", b"negotiate"))


def _decoded(text: bytes) -> bytes:
    """Decode base64, up to the last whole group; b"" if it is invalid."""
    try:
        return b64decode(text[: len(text) // 4 * 4])
    except Base64Error:
        return b""
