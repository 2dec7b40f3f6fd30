"""The comparison of usage with the access log, in small: a gateway, a Redis and a load."""

from __future__ import annotations

from pathlib import Path

from loadtests.usage import run, table


async def test_a_short_run(tmp_path: Path) -> None:
    """A second of load comes out the same."""
    found = await run(tmp_path, workers=2, seconds=1.0, clients=4)
    assert found.log
    assert found.is_same, table(found)
