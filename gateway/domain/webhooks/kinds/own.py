"""Kinds without a provider: the gateway itself makes their events (`domain.webhooks.notices`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.domain.webhooks.kinds.kind import UNKNOWN, Header, Kind
from gateway.domain.webhooks.signatures import Unverified


def _refuse(_body: bytes, _header: Header, _secrets: Sequence[str], _now_s: float) -> None:
    raise Unverified("expected nothing: this kind captures no webhooks")


def _own(name: str) -> Kind:
    return Kind(name, _refuse, lambda *_: "", lambda *_: UNKNOWN, captures=False)


#: Events for an account: its limits and its watches. An account has at most one.
GATEWAY: Final = _own("gateway")
#: Events for whoever runs the gateway: the watches of all accounts.
OPERATOR: Final = _own("operator")
