"""Accounting of decisions: each limit's outcome, and warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.identity import Identity
from gateway.domain.keys import Account
from gateway.domain.limits import Check, Decision, Limit, Standing
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.metrics import Metrics
from gateway.observe.usage_table import UsageTable
from gateway.proxy.account import Accounting
from tests.kit.proxy import proxy_bench, request
from tests.suites.keys import NOW, plain_key

MINUTE = 60_000_000
KEY = Identity(plain_key("a" * 12), Account("acme"))
LIMITS = (Limit("plan", "rate", 100, MINUTE), Limit("search", "rate", 10, MINUTE))
CHECK = Check(LIMITS, ("count-plan", "count-search"))


class Site:
    def __init__(self) -> None:
        self.metrics, self.warned = Metrics("test"), LimitWarnings()
        table = UsageTable(self.metrics, 0)
        self.accounting = Accounting(self.metrics, None, lambda: NOW, table, self.warned)

    def decided(self, *left: int, allowed=True, refusing=0, at_us=NOW, check=CHECK, local=False):
        standings = tuple(Standing(remaining, 5) for remaining in left)
        decision = Decision(allowed, 0, None, at_us, standings, refusing, local)
        self.accounting.decided(check, "free", decision, KEY)

    def outcomes(self):
        (values,) = (
            each.values
            for each in self.metrics.snapshot().series
            if each.family.name == "ratelimit_decisions"
        )
        return {(limit, outcome): count for (limit, _, outcome), (count,) in values.items()}

    def warnings(self):
        return [(warning.limit, warning.level, warning.counter) for warning in self.warned.waiting]


@pytest.fixture
def site():
    return Site()


def test_each_limit_has_an_outcome(site):
    """Up to 80 % a limit counts as admitted, above as near; the warning names its counter."""
    site.decided(20, 1)
    assert site.outcomes() == {("plan", "admitted"): 1, ("search", "near"): 1}
    assert site.warnings() == [("search", 80, "count-search")]


def test_a_refusal(site):
    """The refusing limit counts as reached; the others count nothing."""
    site.decided(0, 0, allowed=False, refusing=0b10)
    assert site.outcomes() == {("search", "limited"): 1}
    assert site.warnings() == [("search", 100, "count-search")]


TRIED = Limit("search:candidate", "rate", 5, MINUTE, shadow=True, is_candidate=True)


@pytest.mark.parametrize(
    ("refusing", "allowed", "local", "outcome"),
    [
        (0b000, True, False, "both_admit"),
        (0b100, True, False, "only_candidate_refuses"),
        (0b010, False, False, "only_enforced_refuses"),
        (0b110, False, False, "both_refuse"),
        # The plan refuses it: what it is for the other two is counted if one of them refuses.
        (0b001, False, False, None),
        (0b101, False, False, "only_candidate_refuses"),
        (0b111, False, False, "both_refuse"),
        # In an outage.
        (0b000, True, True, None),
        (0b110, False, True, None),
    ],
)
def test_a_candidate_is_compared(site, refusing, allowed, local, outcome):
    """By the bits of the limit and of its candidate, which follows it."""
    check = Check((*LIMITS, TRIED), ("count-plan", "count-search", "count-tried"))
    standings = (Standing(5, 5),) * 3
    decision = Decision(allowed, 0, None, NOW, standings, refusing, local)
    site.accounting.compared(check, (2,), decision)
    (found,) = (
        dict(each.values)
        for each in site.metrics.snapshot().series
        if each.family.name == "limit_candidate"
    )
    assert found == ({} if outcome is None else {("search", outcome): (1,)})


def test_once_in_its_window(site):
    """A counter is warned of once until its window is over."""
    for at in range(5):
        site.decided(90, 1, at_us=NOW + at)
        site.decided(90, 0, allowed=False, refusing=0b10, at_us=NOW + at)
    assert site.warnings() == [("search", 80, "count-search"), ("search", 100, "count-search")]
    site.decided(90, 1, at_us=NOW + MINUTE - 1)
    assert len(site.warnings()) == 2
    site.decided(90, 1, at_us=NOW + MINUTE)
    assert len(site.warnings()) == 3


def test_what_causes_no_warning(site):
    """Shadow mode and local decisions cause no warning."""
    shadow = replace(CHECK, limits=(LIMITS[0], replace(LIMITS[1], shadow=True)))
    site.decided(90, 0, refusing=0b10, check=shadow)
    site.decided(90, 0, local=True)
    assert site.outcomes() == {
        ("plan", "admitted"): 1,
        ("search", "shadow"): 1,
        ("plan", "local"): 1,
        ("search", "local"): 1,
    }
    assert site.warnings() == []


MCP = """
routes:
  mcp: {match: "* /mcp", upstream: api, mcp: {}}
  api: {match: "* /**", upstream: api}
"""
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.mark.parametrize(
    ("method", "path", "latencies"),
    [("GET", "/mcp", 0), ("POST", "/mcp", 1), ("DELETE", "/mcp", 1), ("GET", "/api", 1)],
)
def test_a_stream_for_messages_has_no_latency(method, path, latencies):
    """An MCP client keeps it open as long as it likes; it is counted with its bytes."""
    with proxy_bench(routes=MCP) as bench:
        client = bench.client()
        sent = request(bench.key, path, method, PING if method == "POST" else b"")
        client.send(sent.replace(b"Accept: */*", b"Content-Type: application/json"))
        bench.answer()
        (tally,) = bench.context.accounting.usage.open.tallies
        outcomes, measures = tally.add_up()
    assert (outcomes, measures.bytes_out) == ({"admitted:2xx": 1}, 2)
    assert sum(measures.latencies.values()) == latencies
