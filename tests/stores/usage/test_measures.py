"""The texts of measures, also those that another program wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.latency import LAST
from gateway.domain.usage import Measures
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.usage.measures import MOST_LINE, pack, split_counts, split_line, unpack
from gateway.stores.usage.store import RedisUsageStore
from tests.kit.rows import each_row
from tests.suites.usage import LATER_S, NOW_S, Writer, read

MEASURES = st.builds(
    Measures,
    st.integers(0, 2**50),
    st.integers(0, 2**50),
    st.dictionaries(st.integers(0, LAST), st.integers(1, 2**40), max_size=20),
)
OPEN = "gw:{keys}:usage:plan:free"
#: The number of the minute of NOW_S, in base 36.
MINUTE = "hv05c"


@given(MEASURES)
def test_what_was_packed_is_read(measures):
    """Numbers are the same afterwards."""
    assert unpack(pack(measures)) == measures


@each_row(
    "text", ["", "1", "1.2.3", "x.1", "1..2", "-1.2", "1.2.ff.1", "1.2.3." + "f" * 14, "1.2\n"]
)
def test_what_is_not_ours(text):
    """It is no measure: foreign signs, a number too many, a bucket that does not exist."""
    assert unpack(text) is None


def test_a_line_is_split_off():
    """Valid entries of the line are added up; a text without a line has none."""
    line = b"~api=1.2.3.4;s%3Bx=0.5+api=1.1.3.1;bad=1.2.3;=1.2;api"
    assert split_line(line + b"\napi|admitted\n1:1") == (
        {"api": Measures(2, 3, {3: 5}), "s;x": Measures(0, 5)},
        b"api|admitted\n1:1",
    )
    assert split_line(b"api|admitted\n1:1") == ({}, b"api|admitted\n1:1")
    assert split_line(b"~api=1.2") == ({"api": Measures(1, 2)}, b"")
    assert split_line(b"~api=1.2;" + b"x" * MOST_LINE + b"\nrest") == ({}, b"rest")


def test_counts_are_split():
    """Names of measures are no outcomes, also unknown ones."""
    counts = {("api", name): 7 for name in ("admitted:2xx", "~i", "~o", "~1c", "~ff", "~x", "~")}
    assert split_counts(counts) == (
        {("api", "admitted:2xx"): 7},
        {"api": Measures(7, 7, {0x1C: 7})},
    )


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("~", 0),
        ("~foreign", 0),
        ("~api=5.5.3.1", 5),
        ("~api=5.5.3.1+api=" + "f" * 40 + ".0", 5),
        ("~api=5." + "f" * 400 + ".3.1", 5),
        ("~" + "api=0.0;" * 40_000, 0),
        ("~" + "x" * 150_000 + "+", 0),
        ("~+++++===;;;api=5.0", 5),
        ("~api=5.0.fffff.1", 5),
        ("~%00=5", 0),
    ],
)
async def test_a_foreign_line_is_harmless(redis_server, line, kept):
    """Counting goes on, with what is valid in the line, and its hour can be closed."""
    with redis_server.client() as client:
        client.set(OPEN, f"{line}\napi|admitted:2xx\n{MINUTE}:3")
        connection = redis_client(parse_url(redis_server.url))
        store = RedisUsageStore(connection)
        writer = Writer(store)
        measures = {("plan:free", "api"): Measures(7, 8, {3: 1})}
        for at in range(3):
            counts = {("plan:free", "api", "admitted:2xx"): 1}
            await writer.add(counts, NOW_S + 60 * at, measures)
        await writer.add(counts, LATER_S, measures)
        (day,) = await read(store, "plan:free", "day")
        assert day.counts["api", "admitted:2xx"] == 3 + 4
        assert day.measures["api"].bytes_in == kept + 4 * 7
        assert client.strlen(OPEN) < 100
        await connection.aclose()
