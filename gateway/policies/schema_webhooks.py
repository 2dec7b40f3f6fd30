"""The JSON Schema of `webhooks`."""

from __future__ import annotations

from gateway.domain.webhooks.settings import WebhookSettings
from gateway.policies import signatures, webhooks
from gateway.policies.schema_parts import (
    Schema,
    addresses,
    duration,
    integer,
    object_of,
    path,
    size,
    text,
)


def webhook_settings() -> Schema:
    default = WebhookSettings()
    return object_of(
        {
            "brand": text(
                signatures.BRAND,
                "The word in the names of the headers of deliveries: x-BRAND-signature and "
                "x-BRAND-timestamp.",
                default="service",
                example="acme",
            ),
            "allow": addresses(
                "Addresses and CIDR ranges that deliveries may go to beside the public internet."
            ),
            "deny": addresses("Those that they may not go to, whatever else allows them."),
            "ca": path(
                "PEM file of authorities that are trusted beside the system's, for receivers in "
                "networks that allow names. A changed file is reloaded.",
                "internal-ca.pem",
            ),
            "slots": integer(
                "Deliveries of one courier in flight. One that takes longer than a second gives "
                "its slot to another, until twice as many are in flight.",
                webhooks.MOST_SLOTS,
                default=default.slots,
                example=1_000,
            ),
            "per_watch": integer(
                "Deliveries of one watch in flight, over all couriers.",
                webhooks.MOST_PER_WATCH,
                default=default.per_watch,
                example=2,
            ),
            "budget": size(
                "The memory of Redis for events and deliveries. The oldest that are over make room "
                "for others; beyond it webhooks get 503.",
                default.budget_bytes,
                "1GiB",
            ),
            "keep": duration(
                "How long an event can be looked at and sent again when its deliveries are over, "
                "1m to 7d.",
                default.keep_s,
                "3d",
            ),
            "max_event": size(
                "The largest webhook that is captured, and the largest event, up to "
                f"{webhooks.MOST_EVENT_BYTES // 1024**2}MiB.",
                default.event_bytes,
                "256KiB",
            ),
            "spool": size(
                "What a courier keeps in a file of --data while Redis is unavailable.",
                default.spool_bytes,
                "256MiB",
            ),
        },
        "How events are captured, kept and delivered.",
    )
