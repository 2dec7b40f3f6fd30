"""Where a request over plain HTTP is redirected to: the same host, path and query, by https.

Only the request line and Host are read. No other field is looked at, so no key is either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.domain.headers import holds_secret
from gateway.errors import BAD_HOST, BAD_TARGET, KEY_IN_URL, Refusal
from gateway.http1.head import is_host, parse_request_line

#: Lines named Host, anywhere after the request line. Others are not even split.
_HOSTS = re.compile(rb"\r\n(?i:host)[ \t]*:([^\r\n]*)(?=\r\n)").findall
#: A path and a query. Some clients read a backslash as a slash; a fragment is never sent.
_TARGET = re.compile(rb'/[^\x00-\x20\x7f-\xff"#<>\\]*').fullmatch
_PORT: Final = re.compile(rb":[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Redirect:
    """method: "GET"; location: b"https://example.com/a?b", as a whole"""

    method: str
    location: bytes


def read_redirect(head: bytes, port: int) -> Redirect | Refusal:
    """Read a whole head, up to its empty line.

    port: of the https listener. It is in the result if the client named a port itself: a client of
          port 80 is on the default ports, whatever these are forwarded to here
    """
    line, _, _ = head.partition(b"\r\n")
    parsed = parse_request_line(line)
    if isinstance(parsed, Refusal):
        return parsed
    if not _TARGET(parsed.target):
        return BAD_TARGET
    hosts = [value.strip(b" \t") for value in _HOSTS(head)]
    if len(hosts) != 1 or not is_host(hosts[0]) or holds_secret(hosts[0]):
        return BAD_HOST
    if holds_secret(parsed.target):
        return KEY_IN_URL
    name = _PORT.sub(b"", hosts[0])
    if name != hosts[0] and port != 443:
        name += b":%d" % port
    return Redirect(parsed.method, b"https://" + name + parsed.target)
