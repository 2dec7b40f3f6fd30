"""Exactness at scale: many workers, one store, wrong clocks; never one request too many or few."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from time import time

import pytest

from loadtests.exact.run import run
from loadtests.exact.site import LONG, SHORT, Gateway, open_site
from tests.kit.needs import needs
from tests.kit.skewed import FAKETIME
from tests.kit.wire import fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

GATEWAYS, WORKERS, SECONDS = 3, 2, 4.0


@pytest.mark.parametrize("skew_s", [0, pytest.param(3600, marks=needs(FAKETIME))])
async def test_exactly_what_the_limits_allow(tmp_path: Path, skew_s: float) -> None:
    """Three gateways of two workers admit together what one limit allows, by the store's clock:
    a long window, burst or quota to the last unit, a short one over many of its edges, and a key
    and its successor as one; whether their own clocks agree or are hours apart.
    """
    async with open_site(tmp_path, gateways=GATEWAYS, workers=WORKERS, skew_s=skew_s) as site:
        offsets = [await clock_offset(gateway, site.keys[0]) for gateway in site.gateways]
        assert [round(offset / 600) * 600 for offset in offsets] == [0, skew_s, -skew_s]
        outcome = await run(site, SECONDS)
        assert outcome.is_sound, outcome
        assert {row.limit: row.over for row in outcome.verdicts if row.over} == {}
        assert {row.limit: row.untimely for row in outcome.verdicts if row.untimely} == {}
        rows = {row.limit: row for row in outcome.verdicts}
        for name, limit in LONG.items():
            assert rows[name].requests > limit.peak
            assert limit.peak <= rows[name].admitted <= rows[name].allowed
        for name in SHORT:
            assert rows[name].admitted <= rows[name].allowed


async def clock_offset(gateway: Gateway, key: str) -> float:
    """How far ahead the gateway's clock is, in seconds."""
    health = await fetch(gateway.port, "/v1/health", key=key)
    return datetime.fromisoformat(health.json()["timestamp"]).timestamp() - time()
