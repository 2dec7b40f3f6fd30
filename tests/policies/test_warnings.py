"""Warnings: what is reported, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.domain.limits import Check, Limit, build_rate
from gateway.limiting.memory import MemoryLimiter
from gateway.policies.load import read_policy
from gateway.policies.warnings import MOST_WARNINGS, _bound
from tests.docs.pages import ROOT
from tests.kit.reach import reached, reaches
from tests.policies.folder import warnings_of

NOW_US = 1_800_000_000_000_000


ALL = 'all: {match: "* /**", upstream: api}'


@pytest.mark.parametrize(
    ("plans", "limits", "expected"),
    [
        ("free: {rate: 60/minute}", "rate: 300/minute",
         "r.rate: found 'r' with 300, which never refuses, expected at most 120: the limit 'plan' "
         "never admits more in that time, on any plan"),
        ("free: {rate: 60/minute}\npro: {rate: 90/minute, burst: 100}", "rate: 300/minute",
         "expected at most 192: the limit 'plan'"),
        ("free: {rate: 60/minute}", "rate: 300/minute, burst: 400", "'r' with 300, which"),
        ("free: {rate: 1/minute}", "limits: [{name: d, quota: 4000/day}]", "'d' with 4000"),
        ("free: {rate: 60/minute, routes: {r: 300/minute}}", "rate: 30/minute",
         "plans.free.routes.r: found 'r' with 300, which never refuses, expected at most 120"),
    ],
)  # fmt: skip
def test_limits_that_never_act(tmp_path: Path, plans: str, limits: str, expected: str) -> None:
    """A limit that the plan always reaches first; its values, or those of an override."""
    (found,) = warnings_of(tmp_path, f"r: {{match: GET /r, upstream: api, {limits}}}", plans)
    assert expected in found


@pytest.mark.parametrize(
    ("plans", "limits"),
    [
        ("free: {rate: 60/minute}\npro: {rate: 600/minute}", "rate: 300/minute"),
        ("free: {rate: 60/minute, burst: 500}", "rate: 300/minute"),
        ("free: {rate: 60/minute}", "rate: 300/minute, plan_limits: false"),
        ("free: {rate: 60/minute}", "rate: 30/minute, burst: 200"),
        ("free: {rate: 60/minute}", "limits: [{name: x, rate: 300/minute, per: ip}]"),
        ("free: {rate: 60/minute}", "limits: [{name: x, rate: 300/minute, mode: shadow}]"),
        ("free: {rate: 60/minute}", "limits: [{name: x, concurrency: 300}]"),
        ("free: {rate: 60/minute}", "mcp: {}, limits: [{name: x, rate: 300/minute, of: messages}]"),
        ("free: {rate: 60/minute}", "limits: [{name: d, quota: 10000/day}]"),
        ("free: {rate: 60/minute, routes: {r: 300/minute}}", "plan_limits: false, rate: 30/minute"),
    ],
)
def test_limits_that_may_act(tmp_path: Path, plans: str, limits: str) -> None:
    """It acts on some plan, in a shorter time, for another subject, or counts something else."""
    routes = f"r: {{match: '* /r', upstream: api, {limits}}}"
    assert warnings_of(tmp_path, routes, plans) == []


def rates(name: str) -> st.SearchStrategy[Limit]:
    """Limits of a second to ten, with bursts, and quotas."""
    amounts, windows = st.integers(1, 12), st.sampled_from((1_000_000, 4_000_000, 10_000_000))
    bursts = st.none() | st.integers(0, 10)
    rate = st.builds(
        lambda amount, window, more: build_rate(
            name, amount, window, None if more is None else amount + more
        ),
        amounts, windows, bursts,
    )  # fmt: skip
    return rate | st.builds(
        lambda amount, window: Limit(name, "quota", amount, window), amounts, windows
    )


@reaches(0.05)
@given(
    limit=rates("limit"),
    other=rates("other"),
    pauses_us=st.lists(
        st.sampled_from((0, 0, 0, 50_000, 400_000, 1_000_000, 3_000_000)), max_size=60
    ),
)
def test_a_limit_that_is_reported_never_refuses_alone(
    limit: Limit, other: Limit, pauses_us: list[int]
) -> None:
    """Whatever is sent, the other limit refuses each request that the reported one refuses."""
    now_us = NOW_US
    assume(_bound(limit, (limit, other)) is not None)
    limiter = MemoryLimiter(lambda: now_us)
    for pause_us in pauses_us:
        now_us += pause_us
        decision = limiter.decide_now(Check((limit, other), ("a", "b")))
        reached()
        assert decision.refusing in (0, 2, 3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("{concurrency: 5}", "found concurrency for the limit 'r', expected rate, as"),
        ("{quota: 5/day}", "found quota for the limit 'r', expected rate"),
    ],
)  # fmt: skip
def test_overrides_of_another_kind(tmp_path: Path, values: str, expected: str) -> None:
    """A plan's values of another kind than the route's limit."""
    plans = f"free: {{rate: 60/minute, routes: {{r: {values}}}}}"
    (found,) = warnings_of(tmp_path, "r: {match: GET /r, upstream: api, rate: 5/minute}", plans)
    assert f"plans.yaml:2: plans.free.routes.r: {expected}" in found


def test_a_limit_that_a_plan_adds(tmp_path: Path) -> None:
    """A route without a limit may get one of any kind."""
    plans = "free: {rate: 60/minute, routes: {r: {concurrency: 5}}}"
    assert warnings_of(tmp_path, "r: {match: GET /r, upstream: api}", plans) == []


def test_everything_open(tmp_path: Path) -> None:
    """A catch-all without a key, where other routes need one; not where none does."""
    opened = 'all: {match: "* /**", upstream: api, auth: none}'
    (found,) = warnings_of(tmp_path, f"{opened}\nr: {{match: GET /r, upstream: api}}")
    assert "routes.all.match: found '* /**' with auth: none" in found
    assert warnings_of(tmp_path, opened) == []


def test_their_number_is_bounded(tmp_path: Path) -> None:
    """A policy with thousands of suspicious routes has a hundred warnings."""
    routes = "\n".join(
        f"r{at}: {{match: GET /r/{at}, upstream: api, scopes: [x]}}" for at in range(500)
    )
    assert len(warnings_of(tmp_path, f"{routes}\n{ALL}")) == MOST_WARNINGS


def test_the_shipped_policies_have_none() -> None:
    """They are an example."""
    assert read_policy(ROOT / "policies")[1] == ()
