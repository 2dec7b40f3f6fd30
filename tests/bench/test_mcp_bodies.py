"""The bodies that are measured: as long as they say, and read or refused."""

from __future__ import annotations

from gateway.domain.mcp.messages import Body, read_body
from tests.bench.mcp_bodies import kinds, measure
from tests.kit.rows import each_row

SIZE = 256 * 1024
REFUSED = {"a long name", "a long key"}
BODIES = dict(kinds(SIZE))


@each_row("name", BODIES)
def test_bodies(name: str) -> None:
    """Each is about as long as it may be, and is read to its end, but for those with a bound."""
    body = BODIES[name]
    assert len(body) <= SIZE
    assert len(body) > SIZE * 0.9 or name == "a batch of many keys"
    assert isinstance(read_body(body, ""), Body) is (name not in REFUSED)


def test_measures() -> None:
    """The steps of each round, in order, and both requests."""
    steps, whole, plain = measure(BODIES["digits"], rounds=3)
    assert len(steps) == 3
    assert steps == sorted(steps)
    assert whole >= steps[0] > 0 < plain
