"""A route of the courier's API as one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from aiohttp import web

from gateway.manage.deliveries import Deliveries
from gateway.manage.watches import Watches
from gateway.webhooks.requests import Call, QueryReader
from gateway.webhooks.tester import Tester

#: What paths begin with.
INTEGRATIONS: Final = "/api/v1/integrations"
WATCHES: Final = INTEGRATIONS + "/{integration}/watches"
WATCH: Final = WATCHES + "/{watch}"


@dataclass(frozen=True, slots=True)
class Faces:
    """What handlers call."""

    watches: Watches
    deliveries: Deliveries
    tester: Tester


Handler = Callable[[Faces, Call], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    query:      readers by name
    has_body:   a JSON object is required
    needs_turn: few are served at once; of the others the handler bounds how many
    """

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handler: Handler
    query: Mapping[str, QueryReader] = field(default_factory=dict)
    has_body: bool = False
    needs_turn: bool = True
