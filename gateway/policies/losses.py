"""What a policy does not protect any more that the one before did.

A file that is still being written ends early, and may be valid all the same. Routes at its end are
missing then, so that their requests go to a wider route, or settings of the last route are.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.domain.address_lists import AccessList
from gateway.domain.policy import Policy
from gateway.domain.route import Route


def losses(new: Policy, old: Policy) -> tuple[str, ...]:
    """Routes, and rules of access and limits, that `new` lacks: ("route search", …)."""
    names = {name: route for route in new.routes.values() for name in (route.name, *route.was)}
    found = [*_lists("access", new.access, old.access)]
    for name, before in old.routes.items():
        after = names.get(name)
        if after is None:
            found.append(f"route {name}")
        else:
            found.extend(f"route {name}: {what}" for what in _of_route(after, before))
    return tuple(found)


def _of_route(new: Route, old: Route) -> Iterator[str]:
    if old.auth == "key" and new.auth == "none":
        yield "auth"
    yield from (f"scope {scope}" for scope in old.scopes if scope not in new.scopes)
    for name in ("permission", "service", "verification", "mcp"):
        if getattr(old, name) is not None and getattr(new, name) is None:
            yield name
    yield from _lists("access", new.access, old.access)
    if old.plan_limits and not new.plan_limits:
        yield "limits of plans"
    kept = {name for limit in new.every_limit for name in (limit.name, *limit.was)}
    yield from (f"limit {limit.name}" for limit in old.every_limit if limit.name not in kept)
    if old.mcp is not None and new.mcp is not None:
        yield from (f"tool {name}" for name in old.mcp.tools if name not in new.mcp.tools)


def _lists(name: str, new: AccessList | None, old: AccessList | None) -> Iterator[str]:
    """Lists of addresses that are missing, or refuse fewer ranges."""
    if old is None:
        return
    if old.allow is not None and (new is None or new.allow is None):
        yield f"{name}: allow"
    if old.deny is not None:
        denied = 0 if new is None or new.deny is None else len(new.deny)
        if denied < len(old.deny):
            yield f"{name}: deny"
