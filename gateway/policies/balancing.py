"""How an upstream's requests are distributed: the weights of servers, and the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.domain.balancing.rules import RULES
from gateway.domain.targets import place
from gateway.domain.upstreams import Balance, Server
from gateway.policies import fields
from gateway.policies.faults import one_of, suggestion
from gateway.policies.values import Value

SERVER: Final = ("url", "weight")
#: Rules that go by a subject are written with it: {hash: key}.
GO_BY: Final = tuple(name for name, rule in RULES.items() if rule.goes_by)
PLAIN: Final = tuple(name for name in RULES if name not in GO_BY)
MAX_WEIGHT: Final = 1_000
_SERVER_EXPECTED: Final = "an address such as http://127.0.0.1:9000"
_BY_EXPECTED: Final = "key, account, ip or header:NAME"


def read_servers(value: Value) -> tuple[Server, ...]:
    """The servers of an upstream."""
    items = value.items('a list of addresses such as ["http://127.0.0.1:9000"]')
    if items is not None and not items:
        value.add_fault("at least one server", "an empty list")
    servers: dict[Server, Server] = {}
    for item in items or ():
        server = _read_server(item)
        if server is not None and place(server) in servers:
            found = server.url if item.is_mapping else item.found
            item.add_fault("each server once", f"{found} again")
        elif server is not None:
            servers[place(server)] = server
    return tuple(servers.values())


def _read_server(item: Value) -> Server | None:
    if not item.is_mapping:
        return item.parsed(fields.read_server, _SERVER_EXPECTED)
    given = item.fields(SERVER, required=("url",)) or {}
    weight = given["weight"].integer(1, MAX_WEIGHT) if "weight" in given else None
    server = given["url"].parsed(fields.read_server, _SERVER_EXPECTED) if "url" in given else None
    if server is None or weight is None:
        return server
    if server.srv:
        given["weight"].add_fault("no weight, as the SRV records have weights")
    return replace(server, weight=weight)


def read_balance(value: Value) -> Balance | None:
    """`balance`: a rule's name; or a rule with what it goes by: {hash: key}."""
    if value.is_mapping:
        given = value.fields(GO_BY)
        if given is not None and len(given) != 1:
            value.add_fault(f"one rule such as {{{GO_BY[0]}: key}}", f"{len(given)} rules")
        if given is None or len(given) != 1:
            return None
        ((rule, at),) = given.items()
        by = at.parsed(fields.read_per, _BY_EXPECTED)
        return None if by is None else Balance(rule, by)
    text = value.text(one_of(RULES))
    if text is None or text in PLAIN:
        return None if text is None else Balance(text)
    if text in GO_BY:
        value.add_fault(f"what it goes by: {{{text}: key}} ({_BY_EXPECTED})")
    else:
        value.add_fault(one_of(RULES) + suggestion(text, RULES))
    return None
