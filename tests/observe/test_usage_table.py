"""A worker's usage table."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.latency import count
from gateway.domain.usage import NONE_S, Measures
from gateway.errors import IP_NOT_ALLOWED, RATE_LIMITED, UPSTREAM_TIMEOUT
from gateway.observe.metrics import Metrics
from gateway.observe.usage_table import LATENCIES, UsageTable, decision_of

REFUSED = "a", "free", "api", IP_NOT_ALLOWED, "ip_not_allowed"


@pytest.fixture
def metrics():
    return Metrics("test")


@pytest.fixture
def table(metrics):
    return UsageTable(metrics, 60)


def admit(table, key_id="a", plan="", route="api", *ends):
    """Count answered requests as the accounting does."""
    tally = table.tally(key_id, plan, route)
    tally.ended += ends or ((200, 0.01, 0, 100),)
    return tally


def refuse(table, entry=REFUSED, times=1):
    """Count a refusal as the accounting does."""
    for _ in range(times):
        try:
            table.open.counts[entry] += 1
        except KeyError:
            table.begin(entry)


def test_a_request_counts_for_key_and_plan(table):
    """Each request is counted under its key and its plan, by route and outcome."""
    admit(table, "a", "free", "api", *[(200, 0.01, 5, 100)] * 3, (503, 2.0, 0, 7))
    refuse(table, times=2)
    refuse(table, ("a", "free", "search", RATE_LIMITED, "plan"))
    refuse(table, ("b", "free", "api", UPSTREAM_TIMEOUT, "upstream_timeout"))
    refuse(table, ("b", "free", "api", None, "client_gone"))
    table.close(60)
    assert table.take() == (
        60,
        {
            ("key:a", "api", "admitted:2xx"): 3,
            ("plan:free", "api", "admitted:2xx"): 3,
            ("key:a", "api", "failed:5xx"): 1,
            ("plan:free", "api", "failed:5xx"): 1,
            ("key:a", "api", "refused:ip_not_allowed"): 2,
            ("plan:free", "api", "refused:ip_not_allowed"): 2,
            ("key:a", "search", "limited:plan"): 1,
            ("plan:free", "search", "limited:plan"): 1,
            ("key:b", "api", "failed:upstream_timeout"): 1,
            ("plan:free", "api", "failed:upstream_timeout"): 1,
            ("key:b", "api", "failed:client_gone"): 1,
            ("plan:free", "api", "failed:client_gone"): 1,
        },
        dict.fromkeys(
            (("key:a", "api"), ("plan:free", "api")),
            Measures(15, 307, count([0.01, 0.01, 0.01, 2.0])),
        ),
    )
    assert table.take() is None


def test_without_a_key_and_without_a_route(table):
    """A request without a known key counts under no plan, and one without a route under "none"."""
    refuse(table, ("", "", "", IP_NOT_ALLOWED, "not_found"))
    admit(table, "", "", "public")
    table.close(60)
    assert table.take()[1] == {
        ("plan:", "none", "refused:not_found"): 1,
        ("plan:", "public", "admitted:2xx"): 1,
    }


@pytest.mark.parametrize(
    ("refusal", "decision"),
    [
        (None, "failed"),
        (RATE_LIMITED, "limited"),
        (IP_NOT_ALLOWED, "refused"),
        (UPSTREAM_TIMEOUT, "failed"),
    ],
)
def test_decisions(refusal, decision):
    """Each refusal counts as limited, refused or failed."""
    assert decision_of(refusal) == decision


def test_a_minute_is_closed_when_it_is_over(table):
    """Counts after the minute's end go to the next table, even if earlier ones wait."""
    admit(table)
    table.start_minute(60)
    assert table.take() is None
    table.start_minute(120)
    admit(table)
    table.close(120)
    assert [taken[0] for taken in iter(table.take, None)] == [60]
    table.close(120)
    assert [taken[0] for taken in iter(table.take, None)] == [120]
    table.close(180)
    assert table.take() is None


def test_a_tally_ends_with_its_table(table):
    """A tally counts only while its table is open: the next request has another."""
    tally = table.tally("a", "", "api")
    assert tally.table is table.open
    table.close(60)
    assert tally.table is not table.open
    assert table.tally("a", "", "api") is not tally


def test_during_an_outage_a_minute_has_one_table(table):
    """During an outage, a minute's counts are still added up in one table."""
    refuse(table)
    table.close(60)
    for _ in range(30):
        refuse(table)
        table.close(60)
    assert len(table) == 2
    assert [sum(taken[1].values()) for taken in iter(table.take, None)] == [2]
    table.close(60)
    assert [sum(taken[1].values()) for taken in iter(table.take, None)] == [60]


def test_chunks(table):
    """A large table is taken in chunks, and nothing is counted twice."""
    for at in range(25):
        admit(table, f"k{at}")
        refuse(table, (f"r{at}", "", "api", IP_NOT_ALLOWED, "x"))
    table.close(60)
    assert len(table) == 50
    sizes, keys = [], Counter()
    while (taken := table.take(20)) is not None:
        sizes.append(50 - sum(sizes) - len(table))
        keys.update({key: n for (key, *_), n in taken[1].items() if key.startswith("key:")})
    assert sizes == [20, 20, 10]
    assert len(keys) == 50
    assert set(keys.values()) == {1}


def test_room_is_bounded(metrics):
    """Beyond the bound new entries are dropped and counted; existing ones still count."""
    table = UsageTable(metrics, 60, most=3)
    tally = admit(table)
    refuse(table)
    table.close(60)
    refuse(table, times=3)
    assert metrics.usage_dropped == 0
    refuse(table, ("b", "", "api", IP_NOT_ALLOWED, "x"), times=2)
    nowhere = table.tally("c", "", "api")
    assert nowhere.table is None
    assert nowhere.table is not table.open
    assert len(tally.ended) == 1
    assert metrics.usage_dropped == 3
    series = {each.family.name: each.values for each in metrics.snapshot().series}
    assert series["usage_dropped_requests"] == {(): (3,)}
    table.take()
    assert len(table) == 1
    admit(table, "c")
    assert metrics.usage_dropped == 3


def test_room_for_latencies_is_bounded(metrics):
    """In an outage requests are added up each second, and many latencies count as many entries."""
    table = UsageTable(metrics, 60)
    refuse(table)
    table.close(60)
    tally = admit(table, "a", "", "api", *((200, 0.001 * 2**at, 0, 1) for at in range(20)))
    table.close(60)
    assert not tally.ended
    assert len(table) == 2
    table.start_minute(120)
    assert len(table) == 1 + 1 + 20 // LATENCIES
    sizes = [len(table) for _ in iter(table.take, None)]
    assert sizes == [1 + 20 // LATENCIES, 0]


@pytest.mark.parametrize("others", [0, 40])
def test_a_stream_without_latency(table, others):
    """It counts with its status and its bytes, alone or among many."""
    admit(table, "a", "", "api", (200, NONE_S, 10, 20), *((204, 0.5, 1, 2),) * others)
    table.close(60)
    _, counts, measures = table.take()
    assert counts["key:a", "api", "admitted:2xx"] == 1 + others
    assert measures["key:a", "api"].latencies == count([0.5] * others)


def test_a_tunnel_has_no_latency(table):
    """It counts with its status and its bytes; it lasts as long as its user wants."""
    admit(table, "a", "", "api", (101, 7_200.0, 10, 20), (204, 0.5, 1, 2))
    table.close(60)
    _, counts, measures = table.take()
    assert counts["key:a", "api", "admitted:1xx"] == counts["key:a", "api", "admitted:2xx"] == 1
    assert measures["key:a", "api"] == Measures(11, 22, count([0.5]))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("admit"), st.sampled_from("abc")),
            st.tuples(st.just("refuse"), st.sampled_from("abc")),
            st.tuples(st.just("close"), st.integers(0, 3)),
            st.tuples(st.just("take"), st.integers(1, 3)),
        )
    )
)
def test_nothing_is_lost_or_counted_twice(steps):
    """For any order of counting, closing and taking, every count is taken once."""
    table = UsageTable(Metrics("test"), 0)
    wanted, taken = Counter(), Counter()
    for word, given_ in steps:
        if word == "admit":
            admit(table, given_)
            wanted[f"key:{given_}", "api", "admitted:2xx"] += 1
        elif word == "refuse":
            refuse(table, (given_, "", "api", IP_NOT_ALLOWED, "x"))
            wanted[f"key:{given_}", "api", "refused:x"] += 1
        elif word == "close":
            table.close(given_ * 60)
        elif (some := table.take(given_)) is not None:
            taken.update(some[1])
    for _ in range(2):
        table.close(1_000)
        for some in iter(table.take, None):
            taken.update(some[1])
    assert len(table) == 0
    assert {key: n for key, n in taken.items() if key[0].startswith("key:")} == wanted


def test_calls_of_tools_count_for_their_route(table):
    """Beside the request that they are in: by route, tool and outcome, in their minute."""
    for _ in range(3):
        table.called("mcp", "search", "admitted:2xx")
    table.called("mcp", "search", "limited:mcp/search")
    refuse(table)
    table.start_minute(120)
    table.called("mcp", "other", "admitted:2xx")
    table.close(120)
    assert len(table) == 4
    assert table.take() == (
        60,
        {
            ("mcp:mcp", "search", "admitted:2xx"): 3,
            ("mcp:mcp", "search", "limited:mcp/search"): 1,
            ("key:a", "api", "refused:ip_not_allowed"): 1,
            ("plan:free", "api", "refused:ip_not_allowed"): 1,
        },
        {},
    )
    table.close(120)
    assert table.take() == (120, {("mcp:mcp", "other", "admitted:2xx"): 1}, {})
    assert table.take() is None
    assert len(table) == 0


def test_calls_are_taken_in_chunks(table):
    """What is left waits, and counts as what waits."""
    for number in range(5):
        table.called("mcp", f"tool {number}", "admitted:2xx")
    table.close(60)
    taken = [table.take(2) for _ in range(3)]
    assert [len(each[1]) for each in taken] == [2, 2, 1]
    assert len(table) == 0


def test_new_calls_are_dropped_when_too_much_waits(metrics):
    """Those that are counted already count on."""
    table = UsageTable(metrics, 60, most=1)
    for tool in ("search", "other", "search"):
        table.called("mcp", tool, "admitted:2xx")
    table.close(60)
    assert table.take() == (60, {("mcp:mcp", "search", "admitted:2xx"): 2}, {})
