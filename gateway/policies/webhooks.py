"""`webhooks`: how events are captured, kept and delivered; and the upstream of that name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from gateway.domain.upstreams import WEBHOOKS, Upstream
from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.domain.webhooks.signatures import Names
from gateway.policies import fields
from gateway.policies.routes import RouteEntry
from gateway.policies.settings import read_networks, read_size_up_to
from gateway.policies.signatures import BRAND
from gateway.policies.values import Fields, Value, read_path, setting

KEYS: Final = (
    *("brand", "allow", "deny", "ca", "slots", "per_watch", "budget", "keep", "max_event", "spool"),
)
MOST_SLOTS: Final = 10_000
MOST_PER_WATCH: Final = 1_000
#: Less has no room for a few events; more does not belong into Redis, or into one file.
LEAST_BYTES: Final = 1024 * 1024
MOST_BUDGET_BYTES: Final = 64 * 1024**3
MOST_SPOOL_BYTES: Final = 4 * 1024**3
#: The largest event: it is read, parsed and written at once.
MOST_EVENT_BYTES: Final = 4 * 1024**2
#: How long events may be kept: a provider's resend is known for as long at the most.
KEEP_S: Final = (60.0, 7 * 86_400.0)
KEEP_EXPECTED: Final = "a duration from 1m to 7d"


def read_webhooks(value: Value) -> WebhookSettings | None:
    given = value.fields(KEYS)
    if given is None:
        return None
    default = WebhookSettings()
    brand = given["brand"].matching(BRAND, "a word of a-z, 0-9 and -") if "brand" in given else None

    def size(name: str, most: int, otherwise: int) -> int:
        return setting(given, name, partial(_read_size, most), otherwise)

    return WebhookSettings(
        names=default.names if brand is None else Names.of_brand(brand),
        destinations=Destinations(
            allowed=setting(given, "allow", read_networks, ()),
            denied=setting(given, "deny", read_networks, ()),
        ),
        ca=setting(given, "ca", read_path, None),
        slots=setting(given, "slots", lambda at: at.integer(1, MOST_SLOTS), default.slots),
        per_watch=setting(
            given, "per_watch", lambda at: at.integer(1, MOST_PER_WATCH), default.per_watch
        ),
        budget_bytes=size("budget", MOST_BUDGET_BYTES, default.budget_bytes),
        keep_s=setting(given, "keep", lambda at: at.duration(_keep), default.keep_s),
        event_bytes=setting(
            given, "max_event", partial(read_size_up_to, MOST_EVENT_BYTES), default.event_bytes
        ),
        spool_bytes=size("spool", MOST_SPOOL_BYTES, default.spool_bytes),
    )


def check_names(top: Fields, upstreams: Collection[str]) -> None:
    """A policy does not define the built-in upstream."""
    if WEBHOOKS in upstreams:
        top["upstreams"].add_fault(
            f"another name: {WEBHOOKS} is the upstream of the gateway's own webhooks", WEBHOOKS
        )


def with_built_in(
    upstreams: Mapping[str, Upstream], routes: Iterable[RouteEntry]
) -> Mapping[str, Upstream]:
    """The upstreams, with the built-in one if a route leads to it. The gateway knows its server."""
    if any(entry.route is not None and entry.route.upstream == WEBHOOKS for entry in routes):
        return {**upstreams, WEBHOOKS: Upstream(WEBHOOKS, ())}
    return upstreams


def _read_size(most: int, value: Value) -> int | None:
    found = read_size_up_to(most, value)
    if found is not None and found < LEAST_BYTES:
        value.add_fault("at least 1MiB")
        return None
    return found


def _keep(text: str) -> float:
    seconds = fields.read_duration(text)
    if not KEEP_S[0] <= seconds <= KEEP_S[1]:
        raise ValueError(KEEP_EXPECTED)
    return seconds
