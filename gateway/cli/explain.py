"""`gateway explain`: which rules a request meets, in words, and what would happen to it now."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import click

from gateway.cli.keyforms import rate_words, usage_of
from gateway.cli.store import StoreChoice, keys_at, open_store, store_options
from gateway.domain.admission import Grant, grant, open_grant
from gateway.domain.keylife import status_refusal
from gateway.domain.keys import Account
from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing
from gateway.domain.networks import is_within, parse_address
from gateway.domain.policy import Policy, Route
from gateway.domain.ports import Identity, StoreDown
from gateway.domain.spelling import is_key_id, parse
from gateway.errors import IP_NOT_ALLOWED, KEY_MISSING, KEY_UNKNOWN, Refusal
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.proxy.requested import Requested, read_request_line
from gateway.stores.connect import StoreAddress
from gateway.stores.embedded import EmbeddedFailed
from gateway.stores.opening import limiter_at
from gateway.stores.records import CorruptRecord

PATIENCE_S = 2.0


@click.command(epilog="Example: gateway explain --policies policies GET '/api/search/x?q=1'")
@click.option("--policies", type=click.Path(path_type=Path), required=True)
@click.option("--key", metavar="ID", help="Who asks: a key's id. Without it, the rules alone.")
@click.option(
    "--ip", default="127.0.0.1", show_default=True, help="The address that it comes from."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_options
@click.argument("method")
@click.argument("path")
def explain(
    policies: Path,
    key: str | None,
    ip: str,
    as_json: bool,
    store: StoreAddress | None,
    data: Path,
    method: str,
    path: str,
) -> None:
    """Say which route, access rules and limits a request meets, and what would happen now.

    Nothing is counted. With --key the key's record and counts are read from the store.
    """
    with usage_of("--ip"):
        client_ip = str(parse_address(ip))
    with usage_of("PATH"):
        requested = _requested(policies, method, path)
    policy, found = requested
    said: dict[str, object] = {"request": f"{method} {path}"}
    said |= _rules(policy, found)
    if found.refusal is None and key is not None:
        key_id = _key_id(key)
        try:
            said |= asyncio.run(
                _now(policy, found.route, key_id, client_ip, StoreChoice(store, data))
            )
        except (StoreDown, EmbeddedFailed, CorruptRecord) as error:
            raise click.ClickException(str(error)) from error
    elif found.refusal is None:
        said["now"] = _without_key(found.route)
    else:
        said["now"] = _refused(found.refusal)
    click.echo(json.dumps(said, indent=2) if as_json else _as_text(said))


def _requested(folder: Path, method: str, path: str) -> tuple[Policy, Requested]:
    """The policy and what the request line asks of it. Raises ValueError for what is no request."""
    try:
        policy = load(folder)
    except PolicyFaults as faults:
        raise click.ClickException(str(faults).replace("\n", "; ")) from faults
    try:
        line = f"{method} {path} HTTP/1.1".encode("ascii")
    except UnicodeEncodeError:
        raise ValueError("a path has ASCII characters only; encode the others as %XX") from None
    found = read_request_line(line, policy)
    if isinstance(found, Refusal):
        raise ValueError(f"{method} {path}: {found.status} {found.code}: {found.message}")
    return policy, found


def _key_id(text: str) -> str:
    """An id, or the id in a whole key: only that part of it is used."""
    if is_key_id(text):
        return text
    parsed = parse(text)
    if parsed is None:
        raise click.UsageError("--key: expected a key's id, as `gateway keys list` shows it")
    return parsed.id


def _rules(policy: Policy, found: Requested) -> dict[str, object]:
    route = found.route
    if found.refusal is not None:
        return {}
    if found.own:
        return {"route": f"{route.pattern}, answered by the gateway itself; costs nothing"}
    rules: dict[str, object] = {
        "path": found.path,
        "route": f"{route.name} ({route.pattern}, {route.where})",
        "upstream": f"{route.upstream} ({_servers(policy, route)})",
        "access": _access(route),
        "cost": route.cost,
    }
    limits: dict[str, str] = {}
    if route.auth == "key" and route.plan_limits:
        for plan in policy.plans.values():
            limits[f"plan {plan.name}"] = _limit_words(plan.limit)
    for limit in route.limits:
        limits[limit.name] = _limit_words(limit)
    for plan in policy.plans.values():
        for name, limit in plan.overrides.items():
            if name == route.name or any(name == one.name for one in route.limits):
                limits[f"{name} on plan {plan.name}"] = _limit_words(limit)
    rules["limits"] = limits or "none"
    return rules


def _servers(policy: Policy, route: Route) -> str:
    servers = policy.upstreams[route.upstream].servers
    return ", ".join(f"{server.scheme}://{server.authority}" for server in servers)


def _access(route: Route) -> str:
    if route.auth == "none":
        return "everybody, without a key"
    words = ["a key"]
    if route.scopes:
        words.append(f"with the scopes {' '.join(route.scopes)}")
    if route.permission:
        words.append(f"with the permission {':'.join(route.permission)}")
    if route.service:
        words.append(f"whose account has the service {route.service}")
    return ", ".join(words)


def _limit_words(limit: Limit) -> str:
    shadow = ", shadow: never refuses" if limit.shadow else ""
    if limit.kind == "concurrency":
        return f"{limit.amount} at once, per {limit.per}{shadow}"
    words = rate_words(limit).replace(",burst=", ", burst ")
    kind = "quota " if limit.kind == "quota" else ""
    return f"{kind}{words}, per {limit.per}{shadow}"


def _without_key(route: Route) -> str:
    return "admitted, within its limits" if route.auth == "none" else _refused(KEY_MISSING)


async def _now(
    policy: Policy, route: Route, key_id: str, ip: str, choice: StoreChoice
) -> dict[str, object]:
    """What would happen to the key's request at this moment."""
    async with open_store(choice) as address:
        async with keys_at(address) as keys:
            record = await keys.get(key_id)
            if record is None:
                return {"key": key_id, "now": _refused(KEY_UNKNOWN)}
            account = await keys.account(record.account) or Account(record.account)
        key = f"{record.id} ({record.name}), account {record.account}, plan {record.plan}"
        refusal = status_refusal(record, policy.environment, time.time_ns() // 1000)
        if refusal is not None:
            return {"key": key, "now": _refused(refusal)}
        if route.auth == "none":
            granted = open_grant(policy, route)
        else:
            granted = grant(policy, route, Identity(record, account))
        check, decision = await _dry_run(address, granted, ip)
    refusal = granted.refusal
    is_elsewhere = record.networks and not is_within(parse_address(ip), record.networks)
    if route.auth == "key" and is_elsewhere:
        refusal = IP_NOT_ALLOWED
    return {
        "key": key,
        "left": _left(check, decision),
        "now": _refused(refusal) if refusal else _verdict(check, decision),
    }


async def _dry_run(address: StoreAddress, granted: Grant, ip: str) -> tuple[Check, Decision]:
    link, limiter, _ = limiter_at(address, lambda: PATIENCE_S)
    link.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await link.wait_up()
        asked = granted.check_for(ip, lambda _: "", granted.cost)
        check = Check(asked.limits, asked.counters, asked.cost, dry=True)
        answer: asyncio.Future[Decision | None] = asyncio.get_running_loop().create_future()
        limiter.decide(check, answer.set_result)
        decision = await answer
    except TimeoutError:
        raise StoreDown(str(link.last_error or "the store did not answer")) from None
    finally:
        await link.stop()
    if decision is None:
        raise StoreDown("the store did not answer")
    return check, decision


def _left(check: Check, decision: Decision) -> Mapping[str, str]:
    return {
        limit.name: _standing_words(limit, standing)
        for limit, standing in zip(check.limits, decision.standings, strict=True)
    }


def _standing_words(limit: Limit, standing: Standing) -> str:
    left = f"{standing.remaining} of {limit.amount}"
    if limit.kind == "concurrency":
        return f"{left}, each back when its request ends"
    return f"{left}, all back in {standing.reset_us / SECOND_US:.0f} s"


def _verdict(check: Check, decision: Decision) -> str:
    if decision.allowed or not check.cost:
        return "admitted"
    limit = check.limits[decision.governing]
    if limit.kind == "concurrency":
        return f"refused: 429 by {limit.name}, admitted when one of {limit.amount} requests ends"
    if decision.retry_us is None:
        return f"refused: 429, because it costs more than {limit.name} ever admits"
    return f"refused: 429 by {limit.name}, admitted in {decision.retry_us / SECOND_US:.1f} s"


def _refused(refusal: Refusal) -> str:
    return f"refused: {refusal.status} {refusal.code}: {refusal.message}"


def _as_text(said: Mapping[str, object]) -> str:
    lines = []
    for name, value in said.items():
        if isinstance(value, Mapping):
            lines.append(f"{name + ':':<10}")
            lines.extend(f"  {key}: {words}" for key, words in value.items())
        else:
            lines.append(f"{name + ':':<10}{value}")
    return "\n".join(lines)
