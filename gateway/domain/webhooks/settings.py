"""The settings of webhooks, as `policies` reads them from `webhooks`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.signatures import DEFAULT_NAMES, Names

#: The header by which a gateway shows the couriers' application that a request is from it. Clients
#: cannot send it: the gateway drops what begins like its own headers.
COURIER_HEADER: Final = "X-Gateway-Courier"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How events are captured, kept and delivered.

    names:        of the headers of the service's own signature
    destinations: where deliveries may go, beside or except the internet
    ca:           PEM file of authorities that are trusted beside the system's; None: there is none
    slots:        deliveries of one courier in flight; as many again may take longer than a second
    per_watch:    the most deliveries of one watch in flight, over all couriers
    budget_bytes: the most that events and deliveries may take in the store
    keep_s:       how long an event of which nothing waits is kept
    event_bytes:  the largest webhook that is captured, and the largest event
    spool_bytes:  the most that one courier keeps in a file while the store is unavailable
    """

    names: Names = DEFAULT_NAMES
    destinations: Destinations = field(default_factory=Destinations)
    ca: str | None = None
    slots: int = 256
    per_watch: int = 8
    budget_bytes: int = 256 * 1024 * 1024
    keep_s: float = 86_400.0
    event_bytes: int = 1024 * 1024
    spool_bytes: int = 64 * 1024 * 1024
