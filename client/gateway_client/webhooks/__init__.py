"""Receives the gateway's webhooks. It needs nothing but the standard library.

`verify` gives the event of a webhook, in any framework; `asgi.Receiver` and `wsgi.Receiver` are
ready applications; `seen` drops events that were handled before; `sign` is for tests of receivers.
"""

from gateway_client.webhooks.data import (
    Incident,
    Package,
    Person,
    PullRequest,
    Repository,
    Ticket,
    Version,
)
from gateway_client.webhooks.events import Event, EventInvalid, Integration, read_date
from gateway_client.webhooks.seen import AsyncSeenStore, MemorySeen, SeenStore
from gateway_client.webhooks.signatures import Form, SignatureInvalid
from gateway_client.webhooks.verification import check, sign, verify

__all__ = [
    "AsyncSeenStore",
    "Event",
    "EventInvalid",
    "Form",
    "Incident",
    "Integration",
    "MemorySeen",
    "Package",
    "Person",
    "PullRequest",
    "Repository",
    "SeenStore",
    "SignatureInvalid",
    "Ticket",
    "Version",
    "check",
    "read_date",
    "sign",
    "verify",
]
