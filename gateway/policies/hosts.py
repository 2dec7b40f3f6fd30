"""`hosts` of a route: the names of the hosts that it serves."""

from __future__ import annotations

import re
from typing import Final

from gateway.policies.values import Value

#: The most entries of one route.
MOST_HOSTS: Final = 256
#: RFC 1035, 2.3.4: the longest name.
MOST_NAME: Final = 253
_LABEL: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*"
#: A final dot makes no difference.
HOST: Final = rf"(?:\*\.)?{NAME}\.?"
HOST_EXPECTED: Final = "a host such as api.example.com, or *.example.com for all hosts below it"


def read_hosts(value: Value) -> tuple[str, ...] | None:
    items = value.items("a list of hosts such as [api.example.com]")
    if items is None:
        return None
    if not 0 < len(items) <= MOST_HOSTS:
        value.add_fault(
            f"1 to {MOST_HOSTS} hosts; without hosts a route serves all", f"{len(items)} hosts"
        )
    hosts: dict[str, None] = {}
    for item in items:
        host = item.parsed(read_host, HOST_EXPECTED)
        if host is not None and host in hosts:
            item.add_fault("each host once", f"{item.found} again")
        elif host is not None:
            hosts[host] = None
    return tuple(hosts)


def read_host(text: str) -> str:
    """A host in lower case, without a final dot: "api.example.com", "*.example.com"."""
    if text == "*":
        raise ValueError("a route without hosts, which serves all")
    if not text.isascii():
        raise ValueError(f"{HOST_EXPECTED}; other letters than ASCII as punycode (xn--…)")
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit() and re.fullmatch(HOST, name):
        raise ValueError("a host without a port: it is not compared")
    if not re.fullmatch(HOST, text) or len(text) > MOST_NAME:
        raise ValueError(HOST_EXPECTED)
    return text.lower().removesuffix(".")
