"""Maintenance: who is served."""

from __future__ import annotations

import pytest

from gateway.domain.maintenance import Maintenance
from gateway.domain.networks import parse_network


@pytest.mark.parametrize(
    ("allow", "address", "admitted"),
    [
        ([], "192.0.2.1", False),
        (["192.0.2.0/24"], "192.0.2.1", True),
        (["192.0.2.0/24"], "192.0.3.1", False),
        (["192.0.2.0/24", "2001:db8::/32"], "2001:db8::1", True),
    ],
)
def test_who_is_served(allow: list[str], address: str, admitted: bool) -> None:
    """Addresses in any of the ranges; without ranges nobody."""
    maintenance = Maintenance(allow=tuple(map(parse_network, allow)))
    assert maintenance.admits(address) is admitted
