"""What a rename without `was` would lose, and the keys of plans that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.keys import Account
from gateway.domain.policy import with_kept_plans
from gateway.manage import policy_renames
from gateway.manage.policy_renames import keys_of_missing_plans, lost_names
from gateway.policies.load import load
from gateway.stores.keys.memory import MemoryKeyStore
from tests.policies.folder import write
from tests.suites.keys import NOW, plain_key

PLANS = "plans: {free: {rate: 60/minute}, gold: {rate: 9/minute}}\n"
ROUTES = "search: {match: GET /s, upstream: api, rate: 3/minute}"
DAILY = "d: {match: GET /d, upstream: api, limits: [{name: daily, quota: 9/day}]}"


def lost(tmp_path: Path, routes: str, plans: str = PLANS) -> list[str]:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = load(write(tmp_path / "old", routes=f"routes: {{{ROUTES}, {DAILY}}}", plans=PLANS))
    new = load(write(tmp_path / "new", routes=f"routes: {{{routes}}}", plans=plans))
    return [str(fault) for fault in lost_names(old, new, "new")]


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (f"{ROUTES}, {DAILY}", []),
        (ROUTES, []),  # a limit that is only removed
        (
            f"{ROUTES.replace('search', 'find')}, {DAILY}",
            [
                "new: routes.find: found the requests of 'search', expected was: search, or keys "
                "lose the values that they have for it",
                "new: found no limit 'search' any more, but the new find with its window, expected "
                "was: search if it was renamed, or its counters begin anew",
            ],
        ),
        (f"{ROUTES.replace('search', 'find')[:-1]}, was: search}}, {DAILY}", []),
        (
            f"{ROUTES}, {DAILY.replace('daily', 'per-day')}",
            [
                "new: found no limit 'daily' any more, but the new per-day with its window, "
                "expected was: daily if it was renamed, or its counters begin anew"
            ],
        ),
        (f"{ROUTES}, {DAILY.replace('name: daily', 'name: per-day, was: daily')}", []),
        (f"{ROUTES}, {DAILY.replace('daily, quota: 9/day', 'hourly, quota: 9/hour')}", []),
    ],
)
def test_limits_and_routes(tmp_path: Path, routes: str, expected: list[str]) -> None:
    """A name that is gone while another is there instead was probably renamed."""
    assert lost(tmp_path, routes) == expected


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ("{free: {rate: 60/minute}, top: {rate: 9/minute, was: gold}}", []),
        (
            "{free: {rate: 60/minute}, top: {rate: 9/minute}}",
            ["found no plan 'gold' any more, expected was: gold in top if it was renamed, or its"],
        ),
        ("{free: {rate: 60/minute}}", ["expected was: gold if it was renamed"]),
    ],
)
def test_plans(tmp_path: Path, plans: str, expected: list[str]) -> None:
    """A plan that is gone is reported, as keys may have it."""
    found = lost(tmp_path, f"{ROUTES}, {DAILY}", f"plans: {plans}")
    assert [words in line for words, line in zip(expected, found, strict=True)] == [True] * len(
        expected
    )


async def test_keys_of_missing_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid keys of the environment are counted by each plan that is not in the files."""
    before = load(write(tmp_path, plans="plans: {free: {rate: 1/day}, a: {rate: 1/day}}"))
    policy = with_kept_plans(
        load(
            write(tmp_path, plans="plans: {free: {rate: 60/minute}, gold: {rate: 1/day, was: g}}")
        ),
        before,
    )
    store = MemoryKeyStore()
    await store.put_account(Account("of-c", plan="c"))
    for key_id, fields in {
        "a" * 12: {"plan": "a"},
        "b" * 12: {"plan": "a", "status": "revoked"},
        "c" * 12: {"plan": "free", "account": "of-c"},
        "d" * 12: {"plan": "a"},
        "e" * 12: {"plan": "", "account": "of-c"},
        "f" * 12: {"plan": ""},
        "g" * 12: {"plan": "g"},
        "h" * 12: {"plan": "a", "environment": "staging"},
    }.items():
        await store.add(plain_key(key_id, **fields))
    assert await keys_of_missing_plans(store, policy, NOW) == ({"a": 2, "c": 1}, True)
    assert await keys_of_missing_plans(store, before, NOW) == ({"c": 1, "g": 1}, True)
    monkeypatch.setattr(policy_renames, "MOST_COUNTED", 2)
    counts, are_all = await keys_of_missing_plans(store, policy, NOW)
    assert (counts.total(), are_all) == (2, False)
