"""What remains of a key's limits, and their reset."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from gateway.domain.admission import grant
from gateway.domain.identity import Identity
from gateway.domain.keys import Account, with_account
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.audit_log import Actor
from gateway.manage.limits import Limits, now_as_json
from gateway.manage.problems import Conflict, NotThere
from gateway.policies.fields import parse_rate
from gateway.policies.load import load
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.limits.counters import MemoryCounters
from tests.kit.policies import write_policies
from tests.suites.keys import plain_key

NOW = 1_800_000_000_000_000
ANNA = Actor("anna", "console", "127.0.0.1")
ROUTES = """
routes:
  mcp:    {match: "* /mcp/**", upstream: api, plan_limits: false,
           limits: [{name: mcp, rate: 100/minute}, {name: open, concurrency: 5}]}
  search: {match: GET /search, upstream: api, rate: 30/minute}
  shared: {match: GET /shared, upstream: api, limits: [{name: shared, quota: 9/day, per: account, mode: shadow}]}
  other:  {match: GET /other, upstream: api, limits: [{name: shared, quota: 9/day, per: account, mode: shadow}, {name: away, rate: 5/minute, per: ip}]}
  public: {match: GET /public, upstream: api, auth: none, limits: [{name: public, rate: 5/minute, per: ip}]}
  rest:   {match: "* /**", upstream: api}
"""  # noqa: E501 - one line a route, as in a policy file


class Site:
    """Limits over parts in memory."""

    def __init__(self, folder):
        self.policy = load(write_policies(folder, "http://127.0.0.1:9000", routes=ROUTES))
        self.keys, self.audit = MemoryKeyStore(), MemoryAuditStore()
        self.limiter = MemoryLimiter(lambda: NOW)
        counts = MemoryCounters(self.limiter)
        self.limits = Limits(self.keys, counts, self.audit, lambda: self.policy, lambda: NOW)

    async def use(self, record, route, times=1):
        """Send requests with a key; return whether the last was admitted."""
        account = await self.keys.account(record.account) or Account(record.account)
        identity = Identity(with_account(record, account), account)
        check = grant(self.policy, self.policy.routes[route], identity).check
        return [self.limiter.decide_now(check).allowed for _ in range(times)][-1]

    async def left(self, key_id):
        return {one.limit.name: one.standing.remaining for one in await self.limits.now(key_id)}


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


async def test_every_limit_once(site):
    """The plan's limit comes first, then the routes', each with all routes that have it."""
    record = plain_key()
    await site.keys.add(record)
    found = await site.limits.now(record.id)
    assert [(one.limit.name, one.limit.kind, one.limit.per, one.routes) for one in found] == [
        ("plan", "rate", "key", ("search", "shared", "other", "rest")),
        ("mcp", "rate", "key", ("mcp",)),
        ("open", "concurrency", "key", ("mcp",)),
        ("search", "rate", "key", ("search",)),
        ("shared", "quota", "account", ("shared", "other")),
    ]
    assert [one.standing.remaining for one in found] == [60, 100, 5, 30, 9]
    assert found[4].limit.shadow


async def test_used_units_do_not_remain(site):
    """Counters are those of the key's lineage and account, and reading them costs nothing."""
    record, cousin = plain_key(), plain_key("b" * 12)
    for one in (record, cousin):
        await site.keys.add(one)
    await site.use(record, "search", 3)
    await site.use(cousin, "shared", 2)
    for _ in range(2):
        left = await site.left(record.id)
        assert (left["search"], left["shared"], left["mcp"]) == (27, 7, 100)


async def test_own_values_apply(site):
    """The values and the plan of the key, else the account's, replace the plan's."""
    own = MappingProxyType({"search": parse_rate("7/minute", name="search")})
    shared = MappingProxyType(
        {
            "search": parse_rate("8/minute", name="search"),
            "mcp": parse_rate("9/minute", name="mcp"),
        }
    )
    record = plain_key(plan="", limits=own)
    await site.keys.add(record)
    await site.keys.put_account(Account("acme", plan="brisk", limits=shared))
    left = await site.left(record.id)
    assert (left["plan"], left["search"], left["mcp"]) == (2, 7, 9)


async def test_a_removed_plan(site):
    """A key whose plan is no longer in the policies still has the routes' limits."""
    await site.keys.add(plain_key(plan="gone"))
    assert list(await site.left(plain_key().id)) == ["mcp", "open", "search", "shared"]


async def test_differing_values(site, tmp_path):
    """A counter with other values on another route is shown with each; a reset applies to both."""
    routes = """
    routes:
      a: {match: GET /a, upstream: api, plan_limits: false, limits: [{name: x, rate: 5/minute}]}
      b: {match: GET /b, upstream: api, plan_limits: false, limits: [{name: x, rate: 9/minute}]}
    """
    site.policy = load(write_policies(tmp_path / "two", "http://127.0.0.1:9000", routes=routes))
    record = plain_key()
    await site.keys.add(record)
    await site.use(record, "a", 2)
    found = await site.limits.now(record.id)
    assert [(one.routes, one.standing.remaining) for one in found] == [(("a",), 3), (("b",), 7)]
    await site.limits.reset(ANNA, record.id, "x")
    assert [one.standing.remaining for one in await site.limits.now(record.id)] == [5, 9]


async def test_many_limits(tmp_path):
    """More limits than a check may have are read by several checks."""
    routes = "routes:\n" + "".join(
        f"  r{n}: {{match: GET /{n}, upstream: api, rate: {n + 1}/minute}}\n" for n in range(70)
    )
    site = Site(tmp_path)
    folder = write_policies(tmp_path / "many", "http://127.0.0.1:9000", routes=routes)
    site.policy = load(folder)
    await site.keys.add(plain_key())
    left = await site.left(plain_key().id)
    assert left == {"plan": 60} | {f"r{n}": n + 1 for n in range(70)}


async def test_reset(site):
    """A used-up limit admits at once after its reset; the others are unchanged."""
    record = plain_key()
    await site.keys.add(record)
    assert not await site.use(record, "search", 31)
    await site.limits.reset(ANNA, record.id, "search")
    assert await site.use(record, "search")
    left = await site.left(record.id)
    assert (left["search"], left["plan"]) == (29, 29)
    (entry,) = await site.audit.entries()
    event = entry.event
    assert (event.at_us, event.actor, event.action, event.subject) == (
        NOW,
        "anna (console, 127.0.0.1)",
        "limit.reset",
        f"key:{record.id}",
    )
    assert (event.before, event.after) == (
        {"limit": "search", "limits": [{"per": "key", "remaining": 0}]},
        None,
    )


async def test_reset_of_an_account(site):
    """A limit that all keys of an account share is reset for all of them."""
    record, cousin = plain_key(), plain_key("b" * 12)
    for one in (record, cousin):
        await site.keys.add(one)
        await site.use(one, "shared", 2)
    await site.limits.reset(ANNA, record.id, "shared")
    assert (await site.left(cousin.id))["shared"] == 9


async def test_limits_that_cannot_be_reset(site):
    """An unknown key, a limit that the key does not have, a concurrency limit: no audit entry."""
    await site.keys.add(plain_key())
    with pytest.raises(NotThere, match="no key nobody"):
        await site.limits.now("nobody")
    with pytest.raises(NotThere, match="no key nobody"):
        await site.limits.reset(ANNA, "nobody", "plan")
    for name in ("nothing", "public", "away"):
        with pytest.raises(NotThere, match=f"no limit {name}"):
            await site.limits.reset(ANNA, plain_key().id, name)
    with pytest.raises(Conflict, match="open is a concurrency limit"):
        await site.limits.reset(ANNA, plain_key().id, "open")
    assert await site.audit.entries() == []


async def test_as_json(site):
    """All fields, as JSON types."""
    await site.keys.add(plain_key())
    plan, _, held, _, shared = await site.limits.now(plain_key().id)
    assert now_as_json(plan) == {
        "name": "plan",
        "route": None,
        "kind": "rate",
        "of": "requests",
        "limit": 60,
        "burst": 100,
        "window_seconds": 60,
        "period": None,
        "time_zone": None,
        "per": "key",
        "mode": "enforce",
        "routes": ["search", "shared", "other", "rest"],
        "remaining": 60,
        "reset_after": 0,
    }
    assert now_as_json(held)["window_seconds"] is None
    assert (now_as_json(shared)["route"], now_as_json(shared)["mode"]) == ("shared", "shadow")


async def test_a_reset_is_of_its_candidate_too(tmp_path):
    """A limit's candidate is not listed, and is reset with it."""
    site = Site(tmp_path)
    routes = (
        "routes: {s: {match: GET /s, upstream: api, rate: 3/minute, candidate: {rate: 2/minute}}}"
    )
    site.policy = load(write_policies(tmp_path / "tried", "http://127.0.0.1:9000", routes=routes))
    record = plain_key()
    await site.keys.add(record)
    await site.use(record, "s", 3)
    assert set(await site.left(record.id)) == {"plan", "s"}
    identity = Identity(record, Account(record.account))
    ask = grant(site.policy, site.policy.routes["s"], identity).ask
    before = site.limiter.decide_now(ask).standings
    await site.limits.reset(ANNA, record.id, "s")
    after = site.limiter.decide_now(ask).standings
    assert [one.remaining for one in before] == [57, 0, 0]
    assert [one.remaining for one in after] == [57, 3, 2]
