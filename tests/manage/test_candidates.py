"""The comparison of limits with their candidates, from a policy and the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.manage.candidates import compared
from gateway.observe.metrics import Metrics
from gateway.policies.load import load
from tests.kit.policies import write_policies

PLANS = """
plans:
  free: {rate: 60/minute, burst: 100, candidate: {rate: 50/minute, burst: 80}}
  pro: {rate: 600/minute, candidate: {rate: 500/minute}}
"""
ROUTES = """
routes:
  search: {match: GET /search, upstream: api, rate: 30/minute}
  reports: {match: GET /reports, upstream: api,
            limits: [{name: daily, quota: 9/day, in: Asia/Kolkata, candidate: {quota: 5/day}}]}
"""


def test_each_limit_with_a_candidate(tmp_path: Path) -> None:
    """Where it is, both values, and how often they decided alike; 0 where nothing was counted."""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", plans=PLANS, routes=ROUTES))
    metrics = Metrics("test")
    for outcome in ("both_admit", "both_admit", "only_candidate_refuses"):
        metrics.compared("plan", outcome)
    metrics.compared("gone", "both_admit")
    none = {"only_enforced_refuses": 0, "both_refuse": 0}
    assert compared(policy, metrics.snapshot) == [
        {
            "limit": "plan",
            "of": [
                {
                    "where": "plan free",
                    "enforced": "60/minute, burst 100",
                    "candidate": "50/minute, burst 80",
                },
                {"where": "plan pro", "enforced": "600/minute", "candidate": "500/minute"},
            ],
            **{"both_admit": 2, "only_candidate_refuses": 1, **none},
        },
        {
            "limit": "daily",
            "of": [
                {
                    "where": "route reports",
                    "enforced": "quota 9/day in Asia/Kolkata",
                    "candidate": "quota 5/day in Asia/Kolkata",
                }
            ],
            **{"both_admit": 0, "only_candidate_refuses": 0, **none},
        },
    ]


def test_a_policy_without_candidates(tmp_path: Path) -> None:
    """Nothing is shown, and no metrics are read."""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9"))
    assert compared(policy, lambda: pytest.fail("they are not needed")) == []
