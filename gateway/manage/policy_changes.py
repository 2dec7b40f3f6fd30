"""What differs between two policies, the most important first: who may send what, and what counts.

`compare` is for `gateway diff`, for the log and the history of policies, and for the console. It
compares what the policies mean, not their texts: the order of files, comments and defaults that are
written out make no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.domain.patterns import printable
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.manage.policy_limits import LimitChange, limit_changes, plan_limits, plan_pairs
from gateway.manage.policy_requests import Moved, moved_requests, renamed_routes
from gateway.manage.policy_settings import (
    Setting,
    route_changes,
    setting_changes,
    upstream_changes,
)
from gateway.manage.policy_tools import mcp_words, tool_changes
from gateway.manage.words import access_words, cost_words, host_words, limit_words

#: What a change means, the most important first; and its label in texts.
Effect = Literal[
    "public",
    "less_access",
    "unserved",
    "more_access",
    "new_counters",
    "limit",
    "plan",
    "route",
    "upstream",
    "setting",
]
LABELS: Final[Mapping[Effect, str]] = {
    "public": "becomes public",
    "less_access": "needs less",
    "unserved": "no longer served",
    "more_access": "needs more",
    "new_counters": "counters begin anew",
    "limit": "limit",
    "plan": "plan",
    "route": "route",
    "upstream": "upstream",
    "setting": "setting",
}
_ORDER: Final = {effect: at for at, effect in enumerate(LABELS)}
#: Names in a text, before the rest of them is a number.
_MOST_NAMES: Final = 4
#: What is beyond ASCII in our own words: a log in JSON would have it as \\u2192.
_ASCII: Final = str.maketrans({"→": "->", "…": "..."})


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    subject:  "route:search", "tool:mcp/search_code", "limit:search", "plan:free", "upstream:api",
              "setting:timeouts.header"
    before, after: in words; None: there was, or is, none
    request:  an example of the requests that it is about
    counters: of a limit: "kept", or "new" where each begins at zero; None: there was no limit
    plans:    those whose keys it is about; empty: not by plan
    routes:   those that have the limit; empty: all, or not by route
    is_for_all: it is about the keys of all plans
    """

    effect: Effect
    subject: str
    before: str | None
    after: str | None
    request: str | None = None
    counters: Literal["kept", "new"] | None = None
    plans: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    is_for_all: bool = False

    def __str__(self) -> str:
        """On one line: "needs less: route search (GET /api/search/x): … → …"."""
        kind, _, name = self.subject.partition(":")
        about = name if kind == self.effect else f"{kind} {name}"
        if self.request is not None:
            about += f" ({self.request})"
        if self.plans and not self.is_for_all and self.plans != (name,):
            about += f", plan{'s' if len(self.plans) > 1 else ''} {listed(self.plans)}"
        if self.routes and self.routes != (name,):
            about += f", route{'s' if len(self.routes) > 1 else ''} {listed(self.routes)}"
        kept = "; counters are kept" if self.counters == "kept" else ""
        words = f"{self.before or 'none'} → {self.after or 'none'}"
        return f"{LABELS[self.effect]}: {about}: {words}{kept}"


def compare(old: Policy, new: Policy) -> list[Change]:
    """All differences, the most important first. Takes a second where ten thousand routes differ:
    in an event loop, call it in a thread.
    """
    renamed = renamed_routes(old, new)
    changes = [
        *_access_changes(old, new, renamed),
        *(_limit_change(old, new, each) for each in limit_changes(old, new)),
        *_plan_changes(old, new),
        *(
            Change(each.effect, f"tool:{each.name}", each.before, each.after)
            for each in tool_changes(old, new, renamed)
        ),
        *_route_changes(old, new, renamed),
        *(_setting_change("upstream", each) for each in upstream_changes(old, new)),
        *(_setting_change("setting", each) for each in setting_changes(old, new)),
    ]
    # A limit that is gone comes before one with other values.
    return sorted(changes, key=lambda change: (_ORDER[change.effect], change.after is not None))


def summary(changes: Sequence[Change], most: int) -> str:
    """The changes on one line of up to `most` characters: in full, or else by their subjects.

    It is for logs: characters that are not printable are replaced, and arrows are ASCII.
    """
    if not changes:
        return "no difference in effect"
    words = printable("; ".join(map(str, changes))).translate(_ASCII)
    if len(words) > most:
        named: dict[str, dict[str, None]] = {}
        for change in changes:
            named.setdefault(LABELS[change.effect], {})[change.subject.partition(":")[2]] = None
        words = "; ".join(f"{label}: {listed(tuple(names))}" for label, names in named.items())
    return words if len(words) <= most else f"{words[: most - 3]}..."


def change_as_json(change: Change) -> dict[str, object]:
    return {
        "effect": change.effect,
        "subject": change.subject,
        "before": change.before,
        "after": change.after,
        "request": change.request,
        "counters": change.counters,
        "plans": list(change.plans),
        "routes": list(change.routes),
    }


def listed(names: Sequence[str]) -> str:
    """Names in a text: "a, b, c, d and 7 more"."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


# -- access ----------------------------------------------------------------------------------------


def _access_changes(old: Policy, new: Policy, renamed: Mapping[str, str]) -> Iterator[Change]:
    for moved in moved_requests(old, new):
        effect = _access_effect(moved)
        is_other = not _is_same_route(moved, renamed)
        if effect is not None:
            subject = moved.old or moved.new
            assert subject is not None
            yield Change(
                effect,
                f"route:{subject.name}",
                _access(moved.old, is_other),
                _access(moved.new, is_other),
                moved.request,
            )
        if is_other and moved.old and moved.new:
            yield from _limits_of_another_route(moved.request, moved.old, moved.new)


def _is_same_route(moved: Moved, renamed: Mapping[str, str]) -> bool:
    if moved.old is None or moved.new is None:
        return True
    return renamed.get(moved.new.name, moved.new.name) == moved.old.name


def _access(route: Route | None, named: bool) -> str | None:
    if route is None:
        return None
    return f"{access_words(route)} (route {route.name})" if named else access_words(route)


def _access_effect(moved: Moved) -> Effect | None:
    """What happens to the access of a request; None: nothing, or it is new and needs a key."""
    if moved.old is None:
        return "public" if moved.new is not None and moved.new.auth == "none" else None
    if moved.new is None:
        return "unserved"
    before, after = access_needs(moved.old), access_needs(moved.new)
    if before == after:
        return None
    if not after:
        return "public"
    return "less_access" if before - after else "more_access"


def access_needs(route: Route) -> frozenset[str]:
    """What a request of the route needs; empty: nothing, anyone may send it."""
    if route.auth == "none":
        return frozenset()
    needs = ["a key", *(f"scope {scope}" for scope in route.scopes)]
    if route.permission is not None:
        needs.append(f"permission {':'.join(route.permission)}")
    if route.service is not None:
        needs.append(f"service {route.service}")
    return frozenset(needs)


def _limits_of_another_route(request: str, old: Route, new: Route) -> Iterator[Change]:
    """The limits that a request loses or gets because another route has it."""
    before, after = ({limit.name: limit for limit in route.limits} for route in (old, new))
    routes = old.name, new.name
    for name in dict.fromkeys((*before, *after)):
        if (name in before) != (name in after):
            words = [limit_words(each[name]) if name in each else None for each in (before, after)]
            yield Change("limit", f"limit:{name}", words[0], words[1], request, routes=routes)
    if old.auth == new.auth == "key" and old.plan_limits != new.plan_limits:
        words = ["the plan's" if route.plan_limits else None for route in (old, new)]
        yield Change("limit", "limit:plan", words[0], words[1], request, routes=routes)


# -- limits ----------------------------------------------------------------------------------------


def _limit_change(old: Policy, new: Policy, each: LimitChange) -> Change:
    pair = [limit for limit in (each.old, each.new) if limit is not None]
    is_changed = len(pair) == 2
    is_renamed = len({limit.name for limit in pair}) == 2
    before, after = (
        None
        if one is None
        else f"{one.name} {limit_words(one)}"
        if is_renamed
        else limit_words(one)
        for one in (each.old, each.new)
    )
    is_lost = is_changed and not each.kept
    of_plan = is_changed and pair[0].name in _plan_limits(old)
    return Change(
        "new_counters" if is_lost else "limit",
        f"limit:{pair[0].name}",
        before,
        after,
        counters="new" if is_lost else "kept" if each.kept else None,
        plans=each.plans,
        routes=() if of_plan else each.routes,
        is_for_all=not of_plan and set(each.plans) == old.plans.keys() & new.plans.keys(),
    )


def _plan_limits(policy: Policy) -> set[str]:
    """The names of the plans' own limits."""
    plans = policy.plans.values()
    return {limit.name for plan in plans for limit in plan_limits(policy, plan)}


# -- plans, routes, settings -----------------------------------------------------------------------


def _plan_changes(old: Policy, new: Policy) -> Iterator[Change]:
    pairs = plan_pairs(old, new)
    for before, after in pairs:
        if before.name != after.name:
            yield Change("plan", f"plan:{before.name}", before.name, after.name)
        elif before.was != after.was:
            words = [f"was {', '.join(plan.was)}" if plan.was else None for plan in (before, after)]
            yield Change("plan", f"plan:{after.name}", words[0], words[1])
    known = {plan.name for pair in pairs for plan in pair}
    for name in dict.fromkeys((*old.plans, *new.plans)):
        if name not in known:
            words = [_plan_words(policy, name) for policy in (old, new)]
            # The keys of a plan that is gone are refused.
            effect: Effect = "unserved" if words[1] is None else "plan"
            yield Change(effect, f"plan:{name}", words[0], words[1], plans=(name,))


def _plan_words(policy: Policy, name: str) -> str | None:
    plan = policy.plans.get(name)
    if plan is None:
        return "kept for its keys until a restart" if name in policy.kept_plans else None
    return "; ".join(map(limit_words, plan_limits(policy, plan)))


def _route_changes(old: Policy, new: Policy, renamed: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys((*old.routes, *new.routes)):
        before, after = old.routes.get(renamed.get(name, name)), new.routes.get(name)
        if name in renamed.values():
            continue
        if before is None or after is None:
            words = [None if route is None else _whole_route(route) for route in (before, after)]
        else:
            settings = _route_settings(before), _route_settings(after)
            differing = [key for key in settings[0] if settings[0][key] != settings[1][key]]
            parts = list(route_changes((old, before), (new, after)))
            shown = [{key: each[key] for key in differing} for each in settings]
            shown[0].update({part.name: part.before or "none" for part in parts})
            shown[1].update({part.name: part.after or "none" for part in parts})
            words = [_joined(each) for each in shown]
        if words[0] != words[1]:
            subject = f"route:{before.name if before else name}"
            yield Change("route", subject, words[0], words[1])


def _route_settings(route: Route) -> dict[str, str]:
    """A route without its access and limits, by setting."""
    return {
        "name": route.name,
        "match": route.pattern,
        "upstream": route.upstream,
        "cost": cost_words(route),
        "json_rpc": str(route.json_rpc).lower(),
        "case_sensitive": str(route.case_sensitive).lower(),
        "encoded_slash": "keep" if route.keeps_slashes else "refuse",
        "hosts": host_words(route),
        "path": "as sent" if route.rewrite is None else route.rewrite.text,
        "translate": "nothing" if route.translate is None else route.translate.words,
        "canary": "none" if route.canary is None else route.canary.words,
        "mcp": mcp_words(route.mcp),
        "signature": "none" if route.verification is None else route.verification.words,
    }


def _whole_route(route: Route) -> str:
    limits = [f"limit {limit.name} {limit_words(limit)}" for limit in route.every_limit]
    on = f" on {host_words(route)}" if route.hosts else ""
    answered = f"to {route.upstream}" if route.respond is None else f"with {route.respond.status}"
    return "; ".join((f"{route.pattern}{on} {answered}", access_words(route), *limits))


def _joined(words: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in words.items())


def _setting_change(kind: Literal["upstream", "setting"], setting: Setting) -> Change:
    # Keys of another environment are refused.
    effect: Effect = "unserved" if setting.name == "environment" else kind
    return Change(effect, f"{kind}:{setting.name}", setting.before, setting.after)
