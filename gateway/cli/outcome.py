"""What the gateway would do now with the request of a log line, and how that differs from the log.

The same decisions as in `proxy/gate.py`, without keys: a line says who sent the request, and what
its key lacked. Whether a key has the scopes that a route requires now is unknown; if a request was
not refused for that then, its key is assumed to have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gateway.cli.log_lines import Line, brief
from gateway.domain.admission import failed_grant
from gateway.domain.counters import counter_names
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.meets import limits_for
from gateway.domain.networks import limit_subject, parse_address
from gateway.domain.policy import FAILED_AUTH, Plan, Policy
from gateway.domain.route import Route
from gateway.domain.routes import CORS_PREFLIGHT, VERIFY
from gateway.errors import (
    INSUFFICIENT_PERMISSION,
    INSUFFICIENT_SCOPE,
    KEY_MISSING,
    MAINTENANCE,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    ORIGIN_NOT_ALLOWED,
    PLAN_UNKNOWN,
    RATE_LIMITED,
    SERVICE_NOT_ENABLED,
    TABLE,
    Refusal,
)
from gateway.routing import read_request

Kind = Literal["admitted", "limited", "refused", "failed", "unknown"]
#: What a request is refused for before its key is known: it has no route, or no single one.
_UNROUTED: Final = {
    *("not_found", "method_not_allowed", "bad_target", "ambiguous_path", "url_too_long"),
    *("too_many_segments", "key_in_url"),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What would happen to a request now, up to the limiter.

    route:   its name; "": there is none
    check:   what the limiter would be asked; None: no limit applies
    refusal: why it is refused, if the limiter admits it
    repeats: it is refused as it was then, for the line's status and reason
    error:   the reason in words; it names what was found
    is_unknown: the line lacks what the answer depends on, as the request was refused earlier then
    """

    route: str = ""
    check: Check | None = None
    refusal: Refusal | None = None
    repeats: bool = False
    error: str = ""
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What happened, or would happen. status: None: not known; detail: a limit or a reason"""

    kind: Kind
    status: int | None = None
    detail: str = ""


def expect(policy: Policy, line: Line, plan: str | None = None) -> Expected:
    """What would happen to a line's request now. Raises ValueError if it cannot be said.

    plan: of lines that have none
    """
    if not line.path:  # it could not be read, or was not read to its end
        return Expected(repeats=True)
    if _is_preflight(line):
        return Expected(CORS_PREFLIGHT.name, repeats=line.decision == "refused")
    text = f"{line.method} {line.path} HTTP/1.1".encode("utf-8", "surrogatepass")
    requested = read_request(text, policy, (line.host or "").encode("ascii", "replace"))
    refusal = requested if isinstance(requested, Refusal) else requested.refusal
    if isinstance(requested, Refusal) or refusal is not None:
        assert refusal is not None
        return Expected(refusal=refusal, error=_unrouted_words(line, refusal))
    route = requested.route
    if route.auth == "none":
        return _open(policy, line, route)
    return _keyed(policy, line, route, plan if line.plan is None else line.plan)


def _is_preflight(line: Line) -> bool:
    """Is it a preflight, which the gateway answered itself? What it asked for is not in the log."""
    return (
        line.method == "OPTIONS"
        and line.is_own
        and not line.key_id
        and (line.status == 204 or line.reason == ORIGIN_NOT_ALLOWED.reason)
    )


def _open(policy: Policy, line: Line, route: Route) -> Expected:
    """On a route without keys."""
    is_then = _stays_refused(line, route)
    return Expected(route.name, _check(policy, line, route, None, is_then), repeats=is_then)


def _keyed(policy: Policy, line: Line, route: Route, plan_name: str | None) -> Expected:
    """On a route that requires a key."""
    failed = _failed_authentication(line)
    if failed is not None:
        (limit,) = failed_grant(policy).limits
        check = _counted(policy, line, (limit,), 1)
        return Expected(route.name, check, failed, error=f"{failed.status} {failed.code}")
    if not line.key_id:
        words = f"key_id: found none, and route '{route.name}' requires a key"
        if line.decision in (None, "admitted"):
            raise ValueError(words)
        return Expected(route.name, error=words, is_unknown=True)
    plan = policy.plan(plan_name or "")
    if plan is None:
        words = f"plan: found {brief(plan_name)}, expected one of the policies'"
        if plan_name is None:
            raise ValueError(f"{words}; see --plan")
        return Expected(route.name, refusal=PLAN_UNKNOWN, error=words)
    is_then = _stays_refused(line, route)
    return Expected(route.name, _check(policy, line, route, plan, is_then), repeats=is_then)


def _failed_authentication(line: Line) -> Refusal | None:
    """Why a request had no valid key; None: it had one, or was not asked for it."""
    refusal = TABLE.get(line.reason or "")
    if refusal is not None and refusal.status == 401 and line.reason not in _UNROUTED:
        return refusal
    if line.decision == "refused" and line.status == 401:
        return KEY_MISSING
    if line.decision == "limited" and line.limit == FAILED_AUTH.name:
        return KEY_MISSING
    # A handwritten line may have neither status nor reason.
    is_bare = line.status is None and line.reason is None
    return KEY_MISSING if line.decision == "refused" and not line.key_id and is_bare else None


def _stays_refused(line: Line, route: Route) -> bool:
    """Is a request that was refused then, on another route perhaps, refused on this one as well?"""
    if line.decision != "refused" or line.reason in _UNROUTED or not line.is_own:
        return False
    refusal = TABLE.get(line.reason or "")
    if refusal is None or refusal.status not in (401, 403):
        return True  # for what it was itself, such as its body
    if route.auth == "none":
        return False
    return {
        INSUFFICIENT_SCOPE: bool(route.scopes),
        INSUFFICIENT_PERMISSION: route.permission is not None,
        SERVICE_NOT_ENABLED: route.service is not None,
    }.get(refusal, True)


def _check(
    policy: Policy, line: Line, route: Route, plan: Plan | None, is_refused: bool
) -> Check | None:
    """The check of a request's limits; None: no limit applies. Raises ValueError.

    is_refused: it is refused anyway
    """
    # Lines are in the order in which requests ended, and there are none for requests in progress:
    # the leases at a given time are unknown.
    limits = tuple(limit for limit in limits_for(plan, route, {}) if not limit.is_leased)
    if not limits:
        return None
    return _counted(policy, line, limits, _cost(line, route, is_refused))


def _cost(line: Line, route: Route, is_refused: bool) -> int:
    """How much the request counts."""
    cost = line.cost
    if is_refused:
        # If another limit is named, that one counted the request before it was refused.
        counted = cost is not None and line.limit not in (None, FAILED_AUTH.name)
        return cost if counted and cost is not None else 0
    # The log has the costs under the policies of then; requests that were refused, that the store
    # could not decide, or that the gateway answered itself have another cost or 0 there.
    was_decided = line.decision in (None, "admitted", "limited") or line.limit is not None
    if cost is None or not was_decided or _was_refused(line) or route.name == VERIFY.name:
        return route.cost
    return cost


def _was_refused(line: Line) -> bool:
    return line.decision == "refused" or line.reason == PLAN_UNKNOWN.reason


def _counted(policy: Policy, line: Line, limits: tuple[Limit, ...], cost: int) -> Check:
    lineage = line.key_id or ""
    names = counter_names(
        limits,
        account=line.account or lineage,
        home=line.account or lineage,
        lineage=lineage,
        ip=_subject(policy, line) if any(limit.per == "ip" for limit in limits) else "",
        header=lambda _: "",
    )
    return Check(limits, names, cost)


def _subject(policy: Policy, line: Line) -> str:
    """The subject of the line's address for limits; "" if it has none. Raises ValueError."""
    if not line.client_ip:
        return ""
    try:
        return limit_subject(parse_address(line.client_ip), policy.ipv6_prefix)
    except ValueError:
        expected = "an IP address such as 192.0.2.7"
        raise ValueError(f"client_ip: found {brief(line.client_ip)}, expected {expected}") from None


def _unrouted_words(line: Line, refusal: Refusal) -> str:
    if refusal in (NOT_FOUND, METHOD_NOT_ALLOWED):
        return f"no route for {brief(line.method)[1:-1]} {brief(line.path)}"
    if refusal is MAINTENANCE:
        return f"{brief(line.method)[1:-1]} {brief(line.path)} is in maintenance"
    return f"path: found {brief(line.path)}, expected one that can be routed"


# -- then and now ----------------------------------------------------------------------------------


def answer_then(line: Line) -> Answer | None:
    """What the log says; None: nothing. Only a line with a status says what was answered."""
    if line.status is None or line.decision is None:
        return None
    known = line.reason if line.reason in TABLE else ""
    if line.decision == "limited":
        return Answer("limited", line.status, line.limit or "")
    if _was_refused(line):
        return Answer("refused", line.status, known or "")
    return Answer(line.decision, line.status, known or "")


def answer_now(line: Line, expected: Expected, decision: Decision | None) -> Answer:
    """What would happen, after the limiter's decision. decision: None: it was not asked"""
    check = expected.check
    if check is not None and decision is not None and check.cost and not decision.allowed:
        return Answer("limited", RATE_LIMITED.status, check.limits[decision.governing].name)
    if expected.is_unknown:
        return Answer("unknown")
    if expected.refusal is not None:
        return Answer("refused", expected.refusal.status, expected.refusal.reason)
    if expected.repeats:
        return answer_then(line) or Answer("refused")
    return Answer("admitted")


def is_same(line: Line, then: Answer, now: Answer) -> bool:
    """Is the answer of now the one of then, as far as policies decide it?

    A failure of then is none of the policies': such a request would be admitted. Where another
    server wrote the log, it is the same if the client gets the same status.
    """
    if now.kind == "refused":
        return now.status == then.status and (then.kind == "refused" or not line.is_own)
    if now.kind == "admitted" and then.kind == "refused":
        return not line.is_own  # the server behind the gateway refuses it as before
    return now.kind == then.kind or (now.kind == "admitted" and then.kind == "failed")
