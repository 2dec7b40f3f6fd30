"""Keys as commands take and show them: option texts into values, records into JSON and words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import click

from gateway.domain.keylife import has_expired
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import UNITS_US, Limit
from gateway.domain.networks import Network
from gateway.domain.policy import Policy
from gateway.domain.spelling import is_environment, is_key_id, looks_like_key
from gateway.policies import fields
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load

# -- from options ----------------------------------------------------------------------------------


@contextmanager
def usage_of(option: str) -> Iterator[None]:
    """A ValueError about an option's text is bad usage."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error


def read_key_id(ctx: click.Context, _: click.Parameter, text: str) -> str:
    """The callback of an argument ID. What it is not is never repeated: it may be a secret."""
    if is_key_id(text):
        return text
    if looks_like_key(text):
        raise click.UsageError(
            "that is a whole key, which should stay out of command lines; name it by its id, "
            "the part after the environment",
            ctx,
        )
    raise click.UsageError("an ID is 12 letters and digits, as `keys list` shows it", ctx)


def read_name(ctx: click.Context, option: click.Parameter, text: str) -> str:
    """The callback of a key's --name: words for people, on one line."""
    if 0 < len(text.strip()) <= 100 and text.isprintable():
        return text.strip()
    raise click.BadParameter("expected 1 to 100 printable characters", ctx, option)


def read_word(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """The callback of names that policies or accounts use."""
    if text is None or re.fullmatch(fields.NAME, text):
        return text
    raise click.BadParameter(
        "expected up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        ctx,
        option,
    )


def read_words(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[str]:
    """The same for an option that may be repeated; sorted, each once."""
    return sorted({word for text in texts if (word := read_word(ctx, option, text))})


def read_environment(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """The callback of --environment."""
    if text is None or is_environment(text):
        return text
    raise click.BadParameter(
        "expected up to 32 lower-case letters, digits and '-', beginning with a letter", ctx, option
    )


def read_scopes(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[str]:
    """The callback of --scope."""
    for text in texts:
        if not re.fullmatch(fields.SCOPE, text):
            raise click.BadParameter(f"found {text!r}, expected one like a:read", ctx, option)
    return list(dict.fromkeys(texts))


def read_permissions(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """The callback of --permission: area -> actions."""
    found: dict[str, dict[str, None]] = {}
    for text in texts:
        if not re.fullmatch(fields.PERMISSION, text):
            raise click.BadParameter(f"found {text!r}, expected AREA:ACTION", ctx, option)
        area, _, action = text.partition(":")
        found.setdefault(area, {})[action] = None
    return MappingProxyType({area: tuple(actions) for area, actions in found.items()})


def read_networks(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> tuple[Network, ...]:
    """The callback of --ip."""
    try:
        return tuple(dict.fromkeys(fields.read_network(text) for text in texts))
    except ValueError as error:
        raise click.BadParameter(f"expected {error}", ctx, option) from error


def read_overlap_us(ctx: click.Context, option: click.Parameter, text: str) -> int:
    """The callback of --overlap."""
    try:
        return round(fields.read_duration(text) * 1e6)
    except ValueError as error:
        raise click.BadParameter(f"found {text!r}, expected {error}", ctx, option) from error


def expiry_us(text: str, now_us: int) -> int:
    """When "30d", "2026-12-31" (as that day begins in UTC) or an RFC 3339 time is.

    Raises ValueError where it is none of these, or past.
    """
    try:
        at_us = now_us + round(fields.read_duration(text) * 1e6)
    except ValueError:
        at_us = _moment_us(text)
    if at_us <= now_us:
        raise ValueError(f"found {text!r}, which is not in the future")
    return at_us


def _moment_us(text: str) -> int:
    expected = "expected a date as 2026-12-31, a time as 2026-12-31T12:00:00Z, or a duration as 30d"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"found {text!r}, {expected}") from error
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        moment = moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise ValueError(f"found {text!r}, which names no time zone, {expected}")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def read_own_limits(texts: Iterable[str], policy: Policy | None) -> Mapping[str, Limit]:
    """NAME=RATE[,burst=N] into limits by name. Raises ValueError.

    A name that the policy knows as a quota's gives a quota.
    """
    known = _limits_by_name(policy) if policy else None
    limits: dict[str, Limit] = {}
    for text in texts:
        name, _, figures = text.partition("=")
        rate, comma, burst = figures.partition(",burst=")
        if known is not None and name not in known:
            raise ValueError(f"found {name!r}, expected a limit of the policies: {_list(known)}")
        if not re.fullmatch(fields.NAME, name) or (comma and not re.fullmatch(r"\d{1,10}", burst)):
            raise ValueError(f"found {text!r}, expected one like plan=300/minute,burst=500")
        if name in limits:
            raise ValueError(f"{name!r} is given twice")
        try:
            limits[name] = _own_limit(name, rate, int(burst) if comma else None, known or {})
        except ValueError as error:
            raise ValueError(f"found {text!r}, expected {error}") from error
    return MappingProxyType(limits)


def _own_limit(name: str, rate: str, burst: int | None, known: Mapping[str, Limit | None]) -> Limit:
    pattern = known.get(name)
    if pattern is None or pattern.kind == "rate":
        return fields.parse_rate(rate, name=name, burst=burst)
    if pattern.kind == "concurrency":
        raise ValueError("a rate or quota: limits on concurrency have figures of plans only")
    if burst is not None:
        raise ValueError("no burst, because this limit is a quota")
    amount, window_us = fields.read_rate(rate)
    return Limit(name, "quota", amount, window_us)


def _limits_by_name(policy: Policy) -> dict[str, Limit | None]:
    """Every name that own figures can be given for; a route's own name needs no limit of it."""
    known: dict[str, Limit | None] = {"plan": None}
    for route in policy.routes.values():
        known.setdefault(route.name, None)
        known.update({limit.name: limit for limit in route.limits})
    return known


def load_policy(folder: Path | None) -> Policy | None:
    """The policies of --policies; else of ./policies, where there is such a folder; else None."""
    if folder is None:
        folder = Path("policies")
        if not any(folder.glob("*.yaml")):
            return None
    try:
        return load(folder)
    except PolicyFaults as error:
        more = len(error.faults) - 1
        hint = f" (and {more} more, see gateway validate {folder})" if more else ""
        raise click.ClickException(f"{error.faults[0]}{hint}") from error


def check_plan(plan: str, policy: Policy | None) -> None:
    """Raises ValueError where the policies have no such plan."""
    if policy is not None and plan not in policy.plans:
        raise ValueError(f"found {plan!r}, expected a plan of the policies: {_list(policy.plans)}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


# -- for people and scripts ------------------------------------------------------------------------


def key_as_json(record: KeyRecord, now_us: int, used_us: int | None) -> dict[str, object]:
    """All that may be shown of a key."""
    return {
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "plan": record.plan,
        "environment": record.environment,
        "status": record.status,
        "expired": has_expired(record, now_us),
        "created": moment(record.created_us),
        "expires": moment(record.expires_us),
        "last_used": moment(used_us),
        "scopes": list(record.scopes),
        "permissions": {area: list(actions) for area, actions in record.permissions.items()},
        "ip_ranges": [str(network) for network in record.networks],
        "lineage": record.lineage,
        "successor": record.successor,
        "limits": {name: rate_words(limit) for name, limit in record.limits.items()},
    }


def account_as_json(account: Account) -> dict[str, object]:
    """All of an account."""
    return {"name": account.name, "services": list(account.services)}


def status_words(record: KeyRecord, now_us: int) -> str:
    """Its status; "expired" for a valid key that has."""
    expired = record.status == "valid" and has_expired(record, now_us)
    return "expired" if expired else record.status


def moment(at_us: int | None) -> str | None:
    """RFC 3339 in UTC, to the microsecond where there are any."""
    if at_us is None:
        return None
    seconds, micros = divmod(at_us, 1_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{micros:06}Z" if micros else f"{text}Z"


def rate_words(limit: Limit) -> str:
    """As --limit takes it: "300/minute,burst=500"."""
    unit = next(name for name, width in UNITS_US.items() if width == limit.window_us)
    burst = f",burst={limit.burst}" if limit.burst is not None else ""
    return f"{limit.amount}/{unit}{burst}"


def as_lines(shown: Mapping[str, object]) -> str:
    """One line a field; a field without a value is left out."""
    width = max(map(len, shown)) + 2
    return "\n".join(
        f"{name.replace('_', ' ') + ':':{width}}{_words(value)}"
        for name, value in shown.items()
        if value not in (None, [], {})
    )


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return "; ".join(f"{name} {_words(entry)}" for name, entry in value.items())
    return str(value)


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows))
    return "\n".join(lines)
