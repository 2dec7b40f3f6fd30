"""What the operations of webhooks share."""

from __future__ import annotations

from typing import Final

from gateway.admin.api.operations import Call, Parameter
from gateway.admin.refusals import NO_WEBHOOKS
from gateway.manage.refusals import Refused
from gateway.manage.webhooks import Webhooks

TAG: Final = "webhooks"

_ID: Final = "[A-Za-z0-9_-]{1,64}"


def _in_path(name: str, pattern: str, example: str, description: str) -> Parameter:
    schema = {"type": "string", "pattern": f"^{pattern}$", "example": example}
    return Parameter(name, "path", schema, description, required=True)


INTEGRATION_ID: Final = _in_path(
    "id", _ID, "int_5f1c8a60d3b2479e01c4a7b3", "An integration's id, as it is listed."
)
WATCH_ID: Final = _in_path(
    "watch", _ID, "wat_5f1c8a60d3b2479e01c4a7b3", "A watch's id, as it is listed."
)
EVENT_ID: Final = _in_path(
    "event", _ID, "evt_0123456789abcdef0123456789abcdef", "An event's id, as it is listed."
)
DELIVERY_ID: Final = _in_path(
    "delivery",
    f"{_ID}:{_ID}:[0-9]{{1,9}}",
    "evt_0123456789abcdef0123456789abcdef:wat_5f1c8a60d3b2479e01c4a7b3:1",
    "A delivery's id, as it is listed.",
)


def webhooks_of(call: Call) -> Webhooks:
    """The management of webhooks. Raises Refused: there is no store for them."""
    webhooks = call.management.webhooks
    if webhooks is None:
        raise Refused(NO_WEBHOOKS)
    return webhooks
