"""Explains what would happen to a request, and why: its route, access rules, limits and key.

Nothing is counted. The rules come from the policies; the state of a key is read from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gateway.domain.admission import grant, open_grant
from gateway.domain.identity import Identity
from gateway.domain.judge import address_refusal, network_refusal, status_refusal
from gateway.domain.key_format import is_key_id, parse
from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.limits import Check, Decision
from gateway.domain.mcp.settings import Mcp
from gateway.domain.meets import limits_for
from gateway.domain.networks import limit_subject, parse_address
from gateway.domain.policy import Policy
from gateway.domain.ports import Counters, KeyStore
from gateway.domain.route import Route
from gateway.domain.routes import is_own
from gateway.domain.shown import retry_after_s
from gateway.errors import KEY_MISSING, KEY_UNKNOWN, MAINTENANCE, Refusal
from gateway.http1.head import is_host, parse_request_line
from gateway.manage.policy_tools import tool_words
from gateway.manage.problems import Fault, Invalid
from gateway.manage.words import (
    access_words,
    cost_words,
    host_words,
    limit_words,
    maintenance_words,
    path_words,
    refusal_words,
    standing_words,
    upstream_words,
)
from gateway.routing import Requested, read_request


@dataclass(frozen=True, slots=True)
class Rules:
    """What the policies say about a request.

    words: the rules in words, by topic
    route: the matched route; None: the request is refused, whatever its key
    now:   what happens to the request without a key
    """

    words: Mapping[str, object]
    route: Route | None
    now: str

    def without_key(self) -> dict[str, object]:
        """The whole answer for a request without a key."""
        return {**self.words, "now": self.now}


def read_rules(
    policy: Policy, method: str, path: str, host: str = "", ip: str = "127.0.0.1"
) -> Rules:
    """The rules of a request. Raises Invalid if it is not a valid request.

    host: as in its Host header; "": one that no route names
    ip:   the client's, as `read_ip` returns it
    """
    found = _requested(policy, method, path, host)
    denied = address_refusal(policy, found.route, ip)
    words: dict[str, object] = {"request": f"{method} {path}"}
    if host:
        words["host"] = host
    maintenance = found.route.maintenance
    if found.refusal is not None and maintenance is None:
        if found.allow:
            words["allow"] = ", ".join(found.allow)
        return Rules(words, None, refusal_words(denied or found.refusal))
    words |= _rules(policy, found)
    if maintenance is not None and not maintenance.admits(ip):
        now = refusal_words(denied or MAINTENANCE, maintenance.message)
        return Rules(words, None, now)
    is_open = found.route.auth == "none"
    now = "admitted, within its limits" if is_open else refusal_words(KEY_MISSING)
    return Rules(words, found.route, refusal_words(denied) if denied else now)


class Explain:
    """Explains requests under the current policy."""

    def __init__(
        self,
        keys: KeyStore,
        counts: Counters,
        policy: Callable[[], Policy],
        clock_us: Callable[[], int],
    ) -> None:
        self._keys = keys
        self._counts = counts
        self._policy = policy
        self._clock_us = clock_us

    async def ask(
        self,
        method: str,
        path: str,
        key_id: str | None = None,
        ip: str = "127.0.0.1",
        host: str = "",
    ) -> dict[str, object]:
        """What would happen to a request now. Raises Invalid, and with a key StoreDown.

        key_id: the client's; of a whole key only the id is used; None: only the rules
        """
        client_ip = read_ip(ip)
        policy = self._policy()
        rules = read_rules(policy, method, path, host, client_ip)
        if key_id is None:
            return rules.without_key()
        key_id = read_key_id(key_id)
        if rules.route is None:
            return rules.without_key()
        return {**rules.words, **await self._now(policy, rules.route, key_id, client_ip)}

    async def _now(self, policy: Policy, route: Route, key_id: str, ip: str) -> dict[str, object]:
        """What would happen to the key's request now."""
        identity = await self._identity(key_id)
        denied = address_refusal(policy, route, ip)
        key = key_id if identity is None else _key_words(identity.record)
        if route.auth == "none":
            granted, refusal = open_grant(policy, route), denied
        elif identity is None:
            return {"key": key, "now": refusal_words(denied or KEY_UNKNOWN)}
        else:
            refusal = status_refusal(identity.record, policy.environment, self._clock_us())
            refusal = denied or refusal
            if refusal is not None:
                return {"key": key, "now": refusal_words(refusal)}
            granted = grant(policy, route, identity)
            refusal = network_refusal(identity.record, ip) or granted.refusal
        subject = limit_subject(parse_address(ip), policy.ipv6_prefix)
        asked = granted.check_for(subject, lambda _: "", granted.cost)
        check = Check(asked.limits, asked.counters, asked.cost, dry=True, costs=asked.costs)
        decision = await self._counts.decide(check)
        now = refusal_words(refusal) if refusal else _decision_words(check, decision)
        if route.mcp is not None and refusal is None:
            now = f"{now} (a message that counts {check.cost} and may be sent, see tools)"
        if granted.costing is not None and refusal is None:
            now = f"{now} (a request that counts {check.cost})"
        return {"key": key, "remaining": _remaining(check, decision), "now": now}

    async def _identity(self, key_id: str) -> Identity | None:
        record = await self._keys.get(key_id)
        if record is None:
            return None
        account = await self._keys.account(record.account) or Account(record.account)
        return Identity(with_account(record, account), account)


def read_ip(text: str) -> str:
    """An address in canonical form. Raises Invalid."""
    try:
        return str(parse_address(text))
    except ValueError as error:
        raise Invalid(
            Fault("client_ip", repr(text[:64]), "an IP address such as 192.0.2.7")
        ) from error


def read_key_id(text: str) -> str:
    """An id, or the id in a whole key. Raises Invalid."""
    if is_key_id(text):
        return text
    parsed = parse(text)
    if parsed is None:
        # Not shown: it may be a mistyped secret.
        raise Invalid(Fault("key_id", "something else", "a key's id, as the list of keys shows it"))
    return parsed.id


def _requested(policy: Policy, method: str, path: str, host: str) -> Requested:
    if host and not (host.isascii() and is_host(host.encode("ascii"))):
        expected = "a host such as api.example.com, without scheme and path"
        raise Invalid(Fault("host", repr(host[:64]), expected))
    try:
        line = f"{method} {path} HTTP/1.1".encode("ascii")
    except UnicodeEncodeError:
        raise Invalid(
            Fault("path", "other characters", "ASCII characters only; encode the others as %XX")
        ) from None
    found = read_request(line, policy, host.encode("ascii"))
    if isinstance(found, Refusal):
        if isinstance(parse_request_line(f"{method} / HTTP/1.1".encode("ascii")), Refusal):
            raise Invalid(Fault("method", "something else", "a method in capitals such as GET"))
        cause = found.message.partition(". ")[0].rstrip(".")
        answer = f"{found.status} {found.code} ({cause})"
        expected = "a path such as /v1/connectors"
        raise Invalid(Fault("path", f"what is answered with {answer}", expected))
    return found


def _rules(policy: Policy, found: Requested) -> dict[str, object]:
    route = found.route
    if is_own(route):
        answered = f"{route.pattern}, answered by the gateway itself; costs nothing"
        if not route.limits:
            return {"route": answered}
        return {"route": f"{answered} of other limits", "limits": _limits(policy, route)}
    words = ", ".join(filter(None, (route.pattern, path_words(route), route.where)))
    return {
        "path": found.path,
        **({} if route.rewrite is None else {"forwarded": _forwarded(found)}),
        "route": f"{route.name} ({words})",
        "upstream": upstream_words(policy, route),
        **({"hosts": host_words(route)} if policy.hosts is not None else {}),
        **({} if (down := route.maintenance) is None else {"maintenance": maintenance_words(down)}),
        "access": access_words(route),
        **({} if (by := route.verification) is None else {"signature": by.words}),
        "cost": cost_words(route),
        "limits": _limits(policy, route) or "none",
        **({} if route.mcp is None else {"tools": _tools(route.mcp)}),
    }


def _tools(mcp: Mcp) -> dict[str, str]:
    """What each tool needs and costs; `*` is all others."""
    return {name: tool_words(tool) for name, tool in mcp.rules.items()}


def _forwarded(found: Requested) -> str:
    """The path and query that the upstream gets, after the base path of its server."""
    return found.forward_line.split(b" ")[1].decode("ascii")


def _limits(policy: Policy, route: Route) -> dict[str, str]:
    """All limits that a request of the route may meet, for every plan."""
    limits: dict[str, str] = {}
    if route.auth == "key" and route.plan_limits:
        for plan in policy.plans.values():
            limits[f"plan {plan.name}"] = limit_words(plan.limit)
            for limit in plan.more:
                limits[f"{limit.name} of plan {plan.name}"] = limit_words(limit)
    for limit in route.every_limit:
        limits[limit.name] = limit_words(limit)
    for plan in policy.plans.values() if route.auth == "key" else ():
        for limit in limits_for(plan, replace(route, plan_limits=False), {}):
            if limit.name in plan.overrides:
                limits[f"{limit.name} on plan {plan.name}"] = limit_words(limit)
    return limits


def _key_words(record: KeyRecord) -> str:
    return f"{record.id} ({record.name}), account {record.account}, plan {record.plan}"


def _remaining(check: Check, decision: Decision) -> dict[str, str]:
    return {
        limit.name: standing_words(limit, standing)
        for limit, standing in zip(check.limits, decision.standings, strict=True)
    }


def _decision_words(check: Check, decision: Decision) -> str:
    if decision.allowed or not check.cost:
        return "admitted"
    limit = check.limits[decision.governing]
    if limit.is_leased:
        held = f"{limit.amount} {'connections' if limit.rules.shared else 'requests'}"
        return f"refused: 429 by {limit.name}, admitted when one of {held} ends"
    if decision.retry_us is None:
        cost = check.each_cost[decision.governing]
        return (
            f"refused: 429, because it counts {cost} units, and {limit.name} never admits "
            f"more than {limit.peak}"
        )
    return f"refused: 429 by {limit.name}, retry after {retry_after_s(decision)} s"
