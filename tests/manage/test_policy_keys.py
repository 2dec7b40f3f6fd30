"""Which keys a change of the policy affects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.manage.policy_keys import affected, affected_keys
from gateway.policies.load import load
from gateway.stores.keys.memory import MemoryKeyStore
from tests.policies.folder import write

ROUTES = """routes:
  open:   {match: GET /open, upstream: api, scopes: [x]}
  search: {match: GET /search, upstream: api, rate: 5/minute}
  scm:    {match: GET /scm, upstream: api}
"""
CHANGED = """routes:
  open:   {match: GET /open, upstream: api}
  search: {match: GET /search, upstream: api, rate: 6/minute}
  scm:    {match: GET /scm, upstream: api, service: scm}
"""
PLANS = "plans: {free: {rate: 60/minute}, pro: {rate: 60/minute, routes: {search: 9/minute}}}\n"
NOW_US = 1_800_000_000_000_000


def key(key_id: str, plan: str = "free", **fields: Any) -> KeyRecord:
    record = KeyRecord(key_id, b"", key_id, key_id, plan, "production", key_id, 1)
    return replace(record, **fields)


def rows(tmp_path: Path, new: dict[str, str], *keys: KeyRecord) -> list[tuple[str, str, int]]:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = load(write(tmp_path / "old", routes=ROUTES, plans=PLANS))
    after = load(write(tmp_path / "new", **{"routes": ROUTES, "plans": PLANS, **new}))
    pairs = ((each, Account(each.account, ("scm",) if each.id == "s" else ())) for each in keys)
    return [(row.effect, row.plan, row.count) for row in affected(old, after, pairs)]


def test_access_and_limits(tmp_path: Path) -> None:
    """Keys that may send other requests than before, and keys whose limits differ, by plan."""
    own = {"search": Limit("search", "rate", 1, 60_000_000)}
    keys = (
        key("a"),
        key("b", scopes=("x",)),
        key("s", "pro"),  # with the service, and values of its plan
        key("c", limits=own, scopes=("x",)),
        key("d", "gone"),
    )
    assert rows(tmp_path, {"routes": CHANGED}, *keys) == [
        ("refused", "free", 3),
        ("admitted", "free", 1),
        ("admitted", "pro", 1),
        ("limits", "free", 2),
    ]


def test_names_and_candidates_are_no_other_limits(tmp_path: Path) -> None:
    """A limit that is renamed, or is tried with other values, is the same for keys; but not for
    those that lose their own values with its name.
    """
    own = {"search": Limit("search", "rate", 1, 60_000_000)}
    keys = (key("a"), key("b", "pro"), key("c", limits=own))
    plans = PLANS.replace("search:", "find:")
    renamed = ROUTES.replace("search: {", "find: {")
    candidate = ROUTES.replace("rate: 5/minute", "rate: 5/minute, candidate: {rate: 4/minute}")
    texts = (
        ({"routes": renamed.replace("find: {", "find: {was: search, "), "plans": plans}, []),
        ({"routes": renamed, "plans": plans}, [("limits", "free", 1)]),
        ({"routes": candidate}, []),
    )
    for at, (new, expected) in enumerate(texts):
        (tmp_path / str(at)).mkdir()
        assert rows(tmp_path / str(at), new, *keys) == expected


def test_a_plan_that_is_gone_or_new(tmp_path: Path) -> None:
    """All keys of a plan that is gone are refused, and those of a new one are admitted."""
    plans = "plans: {free: {rate: 60/minute}, max: {rate: 60/minute}}\n"
    found = rows(tmp_path, {"plans": plans}, key("a"), key("b", "pro"), key("c", "max"))
    assert found == [("refused", "pro", 1), ("admitted", "max", 1)]


def test_another_environment(tmp_path: Path) -> None:
    """Keys of the environment before are refused."""
    settings = {"settings": "environment: staging\n"}
    found = rows(tmp_path, settings, key("a"), key("b", environment="staging"))
    assert found == [("refused", "free", 1), ("admitted", "free", 1)]


def test_no_difference(tmp_path: Path) -> None:
    """No key is affected."""
    assert rows(tmp_path, {}, key("a"), key("b", "pro")) == []


async def test_keys_of_a_store(tmp_path: Path) -> None:
    """Only valid keys count; those without a plan have that of their account. Some are named."""
    store = MemoryKeyStore()
    for number in range(7):
        await store.add(key(f"k{number}", "", account="acme"))
    await store.add(key("revoked", status="revoked"))
    await store.add(key("expired", expires_us=1))
    await store.put_account(Account("acme", plan="free"))
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = load(write(tmp_path / "old", routes=ROUTES, plans=PLANS))
    faster = ROUTES.replace("5/minute", "6/minute")
    new = load(write(tmp_path / "new", routes=faster, plans=PLANS))
    found = await affected_keys(store, old, new, NOW_US)
    assert found.count == 7
    (row,) = found.rows
    assert (row.plan, row.effect, row.count, len(row.ids)) == ("free", "limits", 7, 5)
    assert str(row).startswith("7 of plan free get other limits: k")
    assert str(row).endswith(" and 2 more")
