"""Explains what would happen to a request: the rules and a key's state, without counting."""

from __future__ import annotations

import pytest

from gateway.domain import key_format
from gateway.domain.admission import open_grant
from gateway.domain.keys import Account
from gateway.domain.limits import Check
from gateway.domain.networks import parse_network
from gateway.domain.ports import StoreDown
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.explain import Explain, read_rules
from gateway.manage.problems import Invalid
from gateway.policies.fields import parse_rate
from gateway.policies.load import load
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.limits.counters import MemoryCounters
from tests.kit.policies import write_policies
from tests.suites.keys import plain_key

NOW = 1_800_000_000_000_000
ROUTES = """
routes:
  search: {match: GET /search, upstream: api, rate: 2/minute, cost: 2}
  scoped: {match: GET /scoped, upstream: api, scopes: [a:read]}
  area:   {match: GET /area, upstream: api, service: scm}
  mcp:    {match: "* /mcp/**", upstream: api, plan_limits: false, limits: [{name: open, concurrency: 2}]}
  public: {match: GET /public, upstream: api, case_sensitive: true, encoded_slash: keep, auth: none, limits: [{name: public, rate: 5/minute, per: ip}]}
  rest:   {match: "* /**", upstream: api}
"""  # noqa: E501 - one line a route, as in a policy file


class Site:
    """Explanations over parts in memory."""

    def __init__(self, folder, routes=ROUTES):
        self.policy = load(write_policies(folder, "http://127.0.0.1:9000", routes=routes))
        self.keys, self.limiter = MemoryKeyStore(), MemoryLimiter(lambda: NOW)
        counts = MemoryCounters(self.limiter)
        self.explain = Explain(self.keys, counts, lambda: self.policy, lambda: NOW)

    async def now(self, path, **fields):
        """The outcome of a request now, with a key that has these fields."""
        ip = fields.pop("ip", "127.0.0.1")
        record = plain_key(**fields)
        if await self.keys.get(record.id) is None:
            await self.keys.add(record)
        return (await self.explain.ask("GET", path, record.id, ip))["now"]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


async def test_with_a_key(site):
    """The rules, the key's owner, what remains and the outcome; twice with the same result."""
    await site.keys.add(plain_key())
    for _ in range(2):
        assert await site.explain.ask("GET", "/search", "7h3k9m2p4q6r") == {
            "request": "GET /search",
            "path": "/search",
            "route": "search (GET /search, routes.yaml:3)",
            "upstream": "api (http://127.0.0.1:9000)",
            "access": "a key",
            "cost": "2",
            "limits": {
                "plan free": "60/minute, burst 100, per key",
                "plan pro": "600/minute, burst 1000, per key",
                "plan enterprise": "6000/minute, burst 10000, per key",
                "plan brisk": "2/second, per key",
                "search": "2/minute, per key",
            },
            "key": "7h3k9m2p4q6r (ci), account acme, plan free",
            "remaining": {
                "plan": "60 of 60 remaining, reset after 0 s",
                "search": "2 of 2 remaining, reset after 0 s",
            },
            "now": "admitted",
        }


@pytest.mark.parametrize(
    ("path", "fields", "outcome"),
    [
        ("/rest", {}, "admitted"),
        ("/rest", {"status": "revoked"}, "401 INVALID_API_KEY"),
        ("/rest", {"expires_us": NOW}, "401 INVALID_API_KEY"),
        ("/rest", {"environment": "staging"}, "401 INVALID_API_KEY"),
        ("/rest", {"networks": (parse_network("10.0.0.0/8"),)}, "403 IP_NOT_ALLOWED"),
        ("/rest", {"networks": (parse_network("10.0.0.0/8"),), "ip": "10.9.9.9"}, "admitted"),
        ("/scoped", {}, "403 INSUFFICIENT_SCOPE"),
        ("/scoped", {"networks": (parse_network("::1"),)}, "403 IP_NOT_ALLOWED"),
        ("/scoped", {"scopes": ("a:read",)}, "admitted"),
        ("/mcp/x", {}, "admitted"),
        ("/a%2fb", {}, "400 BAD_PATH"),
        ("/scoped.", {}, "400 BAD_PATH"),
        ("/Scoped", {}, "403 INSUFFICIENT_SCOPE"),
        ("/public", {"status": "revoked"}, "admitted"),
        ("/v1/auth/verify", {}, "admitted"),
        ("/v1/auth/verify", {"status": "suspended"}, "401 INVALID_API_KEY"),
    ],
)
async def test_outcomes(site, path, fields, outcome):
    """The outcome is the gateway's own, in the same order; an open route ignores the key."""
    assert outcome in await site.now(path, **fields)


def test_how_a_route_reads_paths(site):
    """The description of a route has its path settings that differ from the default."""
    answer = read_rules(site.policy, "GET", "/public").words
    assert answer["route"] == (
        "public (GET /public, case-sensitive, encoded slashes are part of a segment, routes.yaml:7)"
    )
    assert "400 BAD_PATH" in read_rules(site.policy, "GET", "/Public").now


async def test_a_used_up_limit(site):
    """The explanation says which limit refuses, and when it admits again."""
    await site.keys.add(plain_key())
    granted = await site.explain.ask("GET", "/search", plain_key().id)
    assert granted["now"] == "admitted"
    name = "gw:limit:{acme}:key:7h3k9m2p4q6r:"
    for route, lease in (("search", 0), ("mcp", 1), ("mcp", 2)):
        for limit in site.policy.routes[route].limits:
            check = Check((limit,), (f"{name}{limit.counter}",), 2, lease=lease)
            site.limiter.decide_now(check)
    assert await site.now("/search") == "refused: 429 by search, retry after 61 s"
    assert await site.now("/mcp/x") == (
        "refused: 429 by open, admitted when one of 2 requests ends"
    )


async def test_a_plan_and_limits_of_the_account(site):
    """A key without a plan has its account's, and its account's services."""
    await site.keys.put_account(Account("acme", ("scm",), plan="brisk"))
    await site.keys.add(plain_key(plan=""))
    answer = await site.explain.ask("GET", "/area", plain_key().id)
    assert answer["key"].endswith("plan brisk")
    assert answer["remaining"]["plan"].startswith("2 of 2")
    assert answer["now"] == "admitted"


def test_a_plan_sets_values_alone(tmp_path):
    """The subject of a limit and its shadow mode are the route's, on every plan."""
    folder = write_policies(
        tmp_path / "own",
        "http://127.0.0.1:9000",
        plans="plans: {free: {rate: 60/minute, routes: {a: 9/minute, added: 3/minute}}}",
        routes="""
        routes:
          added: {match: GET /x, upstream: api, plan_limits: false,
                  limits: [{name: a, rate: 5/minute, per: account, mode: shadow}]}
        """,
    )
    assert read_rules(load(folder), "GET", "/x").words["limits"] == {
        "a": "5/minute, per account, shadow: never refuses",
        "a on plan free": "9/minute, per account, shadow: never refuses",
        "added on plan free": "3/minute, per key",
    }


def test_candidates_are_in_words(tmp_path):
    """They are shown with their limit; a plan's own values have none."""
    folder = write_policies(
        tmp_path / "tried",
        "http://127.0.0.1:9000",
        plans="""
        plans:
          free: {rate: 60/minute, candidate: {rate: 50/minute, burst: 80}}
          pro: {rate: 600/minute, routes: {a: 9/minute}}
        """,
        routes="""
        routes:
          x: {match: GET /x, upstream: api,
              limits: [{name: a, rate: 5/minute, per: account, candidate: {rate: 1/hour}},
                       {name: b, concurrency: 5, candidate: {concurrency: 3}}]}
        """,
    )
    assert read_rules(load(folder), "GET", "/x").words["limits"] == {
        "plan free": "60/minute, per key; candidate 50/minute, burst 80",
        "plan pro": "600/minute, per key",
        "a": "5/minute, per account; candidate 1/hour",
        "b": "5 concurrent requests, per key; candidate 3 concurrent requests",
        "a on plan pro": "9/minute, per account",
    }


async def test_an_unknown_key(site):
    """An unknown id is refused, except on a route without keys."""
    answer = await site.explain.ask("GET", "/rest", "7h3k9m2p4q6r")
    assert (answer["key"], answer["now"].split(":")[:2]) == (
        "7h3k9m2p4q6r",
        ["refused", " 401 INVALID_API_KEY"],
    )
    answer = await site.explain.ask("GET", "/public", "7h3k9m2p4q6r")
    assert answer["now"] == "admitted"


async def test_a_cost_that_is_never_admitted(site):
    """Values of a key that were set before the route's cost rose."""
    own = {"search": parse_rate("1/minute", name="search")}
    assert await site.now("/search", limits=own) == (
        "refused: 429, because it counts 2 units, and search never admits more than 1"
    )


def use(site, folder, routes):
    """Explain these routes from now on."""
    plans = "plans: {free: {rate: 60/minute}}"
    site.policy = load(write_policies(folder, "http://127.0.0.1:9000", plans=plans, routes=routes))


async def test_a_cost_that_depends_on_the_request(tmp_path, site):
    """It is explained in words; what would happen now is of a request with the least cost."""
    use(
        site,
        tmp_path / "own",
        """
        routes:
          batch: {match: POST /batch, upstream: api, cost: {json: ids, max: 9}}
          whole: {match: POST /whole, upstream: api, cost: {json: ., max: 9}}
          items: {match: GET /items, upstream: api, cost: {header: X-Items, max: 9, default: 4}}
        """,
    )
    await site.keys.add(plain_key())
    for method, path, cost, least in (
        ("POST", "/batch", "1 for each element of ids in the JSON body, at most 9", 1),
        ("POST", "/whole", "1 for each element of the JSON body, at most 9", 1),
        ("GET", "/items", "the number in the header x-items, at most 9; 4 without", 4),
    ):
        answer = await site.explain.ask(method, path, plain_key().id)
        assert answer["cost"] == cost
        assert answer["now"] == f"admitted (a request that counts {least})"


async def test_tools(tmp_path, site):
    """What each needs and costs; what would happen depends on the message."""
    use(
        site,
        tmp_path / "own",
        """
        routes:
          tools: {match: POST /m, upstream: api, mcp: {tools: {
            find: {permission: "scm:read", cost: 5, rate: 9/minute}, "*": deny}}}
        """,
    )
    await site.keys.add(plain_key())
    answer = await site.explain.ask("POST", "/m", plain_key().id)
    assert answer["tools"] == {"find": "permission scm:read, cost 5", "*": "denied"}
    assert answer["limits"]["tools/find"] == "9/minute, per key"
    assert answer["now"] == "admitted (a message that counts 1 and may be sent, see tools)"


async def test_an_address_counts_as_the_gateway_counts_it(site):
    """An IPv6 client is counted with its network."""
    route = site.policy.routes["public"]
    asked = open_grant(site.policy, route).check_for("2001:db8::/64", lambda _: "", 1)
    for _ in range(5):
        site.limiter.decide_now(asked)
    answer = await site.explain.ask("GET", "/public", "7h3k9m2p4q6r", "2001:db8::1")
    assert "429 by public" in answer["now"]


async def test_a_whole_key(site):
    """Only the id of a whole key is used and repeated."""
    text, key_id = key_format.mint("production", lambda _: 0)
    await site.keys.add(plain_key(key_id))
    answer = await site.explain.ask("GET", "/rest", text)
    assert answer["now"] == "admitted"
    assert text not in str(answer)


@pytest.mark.parametrize(
    ("given", "at", "words"),
    [
        ({"method": "get"}, "method", "a method in capitals such as GET"),
        ({"method": "hush-hush"}, "method", "a method in capitals"),
        ({"path": "/a b"}, "path", "400 BAD_REQUEST (The request line is malformed)"),
        ({"path": "/ä"}, "path", "ASCII"),
        ({"key_id": "hush-hush"}, "key_id", "a key's id"),
        ({"ip": "nowhere"}, "client_ip", "'nowhere'"),
    ],
)
async def test_invalid_questions(site, given, at, words):
    """An invalid question is a fault of its field, without text that may be secret."""
    with pytest.raises(Invalid) as caught:
        await site.explain.ask(**{"method": "GET", "path": "/x", **given})
    (fault,) = caught.value.faults
    assert fault.at == at
    assert words in str(fault)
    assert "hush" not in str(caught.value)


def test_the_rules_alone(site):
    """Without a key, the rules and the outcome of a request without a key are returned."""
    answer = read_rules(site.policy, "GET", "/rest").without_key()
    assert "401" in answer["now"]
    assert "key" not in answer
    answer = read_rules(site.policy, "GET", "/public").without_key()
    assert answer["now"] == "admitted, within its limits"
    refused = read_rules(site.policy, "POST", "/v1/health")
    assert refused.route is None
    assert "405" in refused.without_key()["now"]


MAINTENANCE = """
routes:
  status: {match: GET /status, upstream: api, auth: none, maintenance: false}
  open:   {match: GET /open, upstream: api, auth: none}
  keyed:  {match: GET /keyed, upstream: api, access: {deny: [10.0.0.9]}}
  closed: {match: GET /closed, upstream: api, maintenance: true}
maintenance: {message: Back soon., allow: [10.0.0.0/8, 192.0.2.1]}
"""


@pytest.mark.parametrize(
    ("path", "ip", "now"),
    [
        ("/open", "203.0.113.1", "refused: 503 MAINTENANCE: Back soon."),
        ("/open", "10.1.2.3", "admitted, within its limits"),
        ("/open", "192.0.2.1", "admitted, within its limits"),
        ("/keyed", "203.0.113.1", "refused: 503 MAINTENANCE: Back soon."),
        ("/keyed", "10.1.2.3", "refused: 401 "),
        ("/keyed", "10.0.0.9", "refused: 403 ADDRESS_DENIED"),
        ("/closed", "10.1.2.3", "refused: 503 MAINTENANCE: "),
        ("/status", "203.0.113.1", "admitted, within its limits"),
    ],
)
async def test_who_is_served_during_maintenance(tmp_path, path, ip, now):
    """The address decides, without a key and with one; the rules of the route are shown."""
    site = Site(tmp_path, routes=MAINTENANCE)
    answer = read_rules(site.policy, "GET", path, ip=ip).without_key()
    assert answer["now"].startswith(now)
    assert answer["route"].startswith(path[1:])
    expected = {
        "/status": None,
        "/closed": "all get 503",
    }.get(path, "all get 503, except for clients of 10.0.0.0/8, 192.0.2.1/32")
    assert answer.get("maintenance") == expected
    with_key = await site.now(path, ip=ip)
    assert with_key.startswith(now if "503" in now or "403" in now else "admitted")


async def test_an_outage(site):
    """What cannot be known is not made up."""

    class Away:
        async def decide(self, _check):
            raise StoreDown("away")

    await site.keys.add(plain_key())
    explain = Explain(site.keys, Away(), lambda: site.policy, lambda: NOW)
    with pytest.raises(StoreDown):
        await explain.ask("GET", "/rest", plain_key().id)
    assert "401" in (await explain.ask("GET", "/rest"))["now"]


async def test_a_method_that_the_path_does_not_have(site):
    """The methods that it has are shown, as the answer has them in Allow."""
    asked = await site.explain.ask("DELETE", "/health", "7h3k9m2p4q6r")
    assert list(asked) == ["request", "allow", "now"]
    assert asked["allow"] == "GET, HEAD"
    assert asked["now"].startswith("refused: 405 METHOD_NOT_ALLOWED")
    assert "allow" not in await site.explain.ask("GET", "/%00")
