"""The gate's answers: the order of its steps, what each costs, and what is cached."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gateway.domain.identity import Absent, Identity
from gateway.domain.limits import Check, Decision
from gateway.domain.networks import parse_network
from gateway.domain.policy import Bounds
from gateway.proxy.gate import MOST_LINE_BYTES
from tests.kit.proxy import (
    NOW_US,
    OK,
    Client,
    PromptLimiter,
    ProxyBench,
    ScriptedDirectory,
    policy_of,
    proxy_bench,
    request,
)
from tests.proxy.conftest import Start

ROUTES = """
routes:
  plain:  {match: GET /plain,  upstream: api, cost: 2}
  scoped: {match: GET /scoped, upstream: api, scopes: ["connectors:write"]}
  area:   {match: GET /area,   upstream: api, service: scm}
  open:   {match: GET /open,   auth: none, limits: [$EACH], upstream: api}
  bare:   {match: GET /bare,   upstream: api, auth: none}
""".replace("$EACH", "{name: each, rate: 5/minute, per: ip}")
ELSEWHERE = (parse_network("203.0.113.0/24"),)
NO_KEY = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def bench() -> Iterator[ProxyBench]:
    with proxy_bench(routes=ROUTES) as bench:
        yield bench


def status_of(client: Client) -> int:
    """The status of the last answer."""
    return client.statuses[-1]


def code_of(client: Client) -> str:
    """The error code of the last answer; "": it has none."""
    found = re.findall(r'"code": ?"(\w+)"', client.written.decode())
    return found[-1] if found else ""


def last_check(bench: ProxyBench) -> tuple[str, str, int]:
    """The last check: the limit's name, what it counts per, and the cost."""
    limiter = bench.context.gate.limiter
    assert isinstance(limiter, PromptLimiter)
    check = limiter.last
    assert check is not None
    return check.limits[0].name, check.limits[0].per, check.cost


def with_fields(**fields: Any) -> Callable[[ProxyBench], bytes]:
    """A request to /plain with a key whose record has these fields."""
    return lambda bench: request(bench.add_key(**fields), "/plain")


def plain(path: str) -> Callable[[ProxyBench], bytes]:
    return lambda bench: request(bench.key, path)


FAILED, PLAN = ("failed_auth", "ip"), ("plan", "key")

TABLE: list[tuple[str, Callable[[ProxyBench], bytes], int, str, tuple[str, str, int]]] = [
    # the request; the status and its code; the limit that is checked, and at what cost
    ("admitted", plain("/plain"), 200, "", (*PLAN, 2)),
    ("no such path", plain("/nowhere"), 404, "NOT_FOUND", (*PLAN, 0)),
    ("no such path, no key", lambda _: NO_KEY % b"/nowhere", 404, "NOT_FOUND", (*FAILED, 0)),
    (
        "no such path, not a key",
        lambda _: request("swordfish", "/nowhere"),
        404,
        "NOT_FOUND",
        (*FAILED, 0),
    ),
    (
        "no such path, an unknown key",
        lambda bench: request(bench.unknown_key(), "/nowhere"),
        404,
        "NOT_FOUND",
        (*FAILED, 1),
    ),
    (
        "no such path, suspended",
        lambda bench: request(bench.add_key(status="suspended"), "/nowhere"),
        404,
        "NOT_FOUND",
        (*FAILED, 1),
    ),
    (
        "no such path, another secret",
        lambda bench: request(bench.add_key(digest=bytes(32)), "/nowhere"),
        404,
        "NOT_FOUND",
        (*FAILED, 1),
    ),
    (
        "no such path, another network",
        lambda bench: request(bench.add_key(networks=ELSEWHERE), "/nowhere"),
        404,
        "NOT_FOUND",
        (*PLAN, 0),
    ),
    (
        "no such path, no such plan",
        lambda bench: request(bench.add_key(plan="gone"), "/nowhere"),
        404,
        "NOT_FOUND",
        (*FAILED, 0),
    ),
    (
        "no such method",
        lambda bench: request(bench.key, "/plain", "PUT"),
        405,
        "METHOD_NOT_ALLOWED",
        (*PLAN, 0),
    ),
    (
        "two hosts",
        lambda bench: request(bench.key, "http://other.example/plain"),
        400,
        "BAD_REQUEST",
        (*PLAN, 0),
    ),
    (
        "two hosts, an unknown key",
        lambda bench: request(bench.unknown_key(), "http://other.example/plain"),
        400,
        "BAD_REQUEST",
        (*FAILED, 1),
    ),
    ("no key", lambda _: NO_KEY % b"/plain", 401, "INVALID_API_KEY", (*FAILED, 1)),
    ("not a key", lambda _: request("swordfish", "/plain"), 401, "INVALID_API_KEY", (*FAILED, 1)),
    (
        "mistyped",
        lambda bench: request(bench.key[:-1] + "!", "/plain"),
        401,
        "INVALID_API_KEY",
        (*FAILED, 1),
    ),
    (
        "unknown",
        lambda bench: request(bench.unknown_key(), "/plain"),
        401,
        "INVALID_API_KEY",
        (*FAILED, 1),
    ),
    ("another secret", with_fields(digest=bytes(32)), 401, "INVALID_API_KEY", (*FAILED, 1)),
    ("revoked", with_fields(status="revoked"), 401, "INVALID_API_KEY", (*FAILED, 1)),
    ("suspended", with_fields(status="suspended"), 401, "INVALID_API_KEY", (*FAILED, 1)),
    ("expired", with_fields(expires_us=NOW_US), 401, "INVALID_API_KEY", (*FAILED, 1)),
    ("good for 1 us more", with_fields(expires_us=NOW_US + 1), 200, "", (*PLAN, 2)),
    ("another environment", with_fields(environment="test"), 401, "INVALID_API_KEY", (*FAILED, 1)),
    ("another network", with_fields(networks=ELSEWHERE), 403, "IP_NOT_ALLOWED", (*PLAN, 0)),
    (
        "its own network",
        with_fields(networks=(parse_network("192.0.2.0/24"),)),
        200,
        "",
        (*PLAN, 2),
    ),
    ("no scope", plain("/scoped"), 403, "INSUFFICIENT_SCOPE", (*PLAN, 0)),
    ("no service", plain("/area"), 403, "SERVICE_NOT_ENABLED", (*PLAN, 0)),
    ("no such plan", with_fields(plan="gone"), 503, "PLAN_NOT_CONFIGURED", (*FAILED, 0)),
    ("open, no key", lambda _: NO_KEY % b"/open", 200, "", ("each", "ip", 1)),
    (
        "open, a bad key",
        lambda bench: request(bench.unknown_key(), "/open"),
        200,
        "",
        ("each", "ip", 1),
    ),
    ("open, without a limit", lambda _: NO_KEY % b"/bare", 200, "", (*FAILED, 0)),
]


@pytest.mark.parametrize(
    ("make", "status", "code", "check"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "byte by byte"])
def test_steps(
    bench: ProxyBench,
    make: Callable[[ProxyBench], bytes],
    status: int,
    code: str,
    check: tuple[str, str, int],
    bytewise: bool,
) -> None:
    """Each refusal has its answer; a failed authentication costs the address 1."""
    sent = make(bench)
    client = bench.client()
    for piece in [sent[at : at + 1] for at in range(len(sent))] if bytewise else [sent]:
        client.send(piece)
    assert (bench.asked() is not None) == (status == 200), "only admitted requests are forwarded"
    bench.answer()
    assert (client.statuses, code_of(client)) == ([status], code)
    assert last_check(bench) == check


FAULTS = ("match", "identify", "network", "scope", "limit")


@pytest.mark.parametrize("present", list(product([False, True], repeat=len(FAULTS))))
def test_the_order_of_the_steps(bench: ProxyBench, present: tuple[bool, ...]) -> None:
    """Of several faults the first in the order of the steps is answered.

    One exception: after too many failed authentications, the answer is 429.
    """
    match, identify, network, scope, limit = present
    bench.use_limiter(PromptLimiter(allowed=not limit))
    key = bench.add_key(
        status="revoked" if identify else "valid", networks=ELSEWHERE if network else ()
    )
    client = bench.client()
    client.send(request(key, "/nowhere" if match else "/scoped" if scope else "/plain"))
    bench.answer()
    expected = {"match": 404, "identify": 429 if limit else 401}
    expected |= {"network": 403, "scope": 403, "limit": 429}
    first = next((fault for fault, there in zip(FAULTS, present, strict=True) if there), None)
    assert client.statuses == [200 if first is None else expected[first]]
    if first in ("network", "scope"):
        code = {"network": "IP_NOT_ALLOWED", "scope": "INSUFFICIENT_SCOPE"}[first]
        assert code_of(client) == code


# -- what is cached for the requests of a connection -----------------------------------------------
def asked_again(bench: ProxyBench, client: Client, key: str, path: str = "/plain") -> int:
    """The status of the same request again on this connection."""
    client.send(request(key, path))
    bench.answer()
    return status_of(client)


@pytest.mark.parametrize(
    "fields", [{"status": "revoked"}, {"status": "suspended"}, {"networks": ELSEWHERE}]
)
def test_a_key_that_changes(bench: ProxyBench, fields: dict[str, Any]) -> None:
    """A change counts from the next request on, and so does changing it back."""
    client = bench.client()
    assert asked_again(bench, client, bench.key) == 200
    before = bench.identities[bench.key].record
    bench.change_key(bench.key, **fields)
    refused = asked_again(bench, client, bench.key)
    assert refused == (403 if "networks" in fields else 401)
    bench.change_key(bench.key, status=before.status, networks=before.networks)
    assert asked_again(bench, client, bench.key) == 200


def test_the_key_of_a_faulty_request_that_changes(bench: ProxyBench) -> None:
    """From the next request on, it is a failed authentication."""
    client = bench.client()
    for status, check in (("valid", (*PLAN, 0)), ("revoked", (*FAILED, 1))):
        bench.change_key(bench.key, status=status)
        for _ in range(2):
            client.send(request(bench.key, "/nowhere"))
            assert (client.statuses.pop(), last_check(bench)) == (404, check)


def test_a_key_that_expires(bench: ProxyBench) -> None:
    """At the latest at the next check of deadlines; on another connection at once."""
    key = bench.add_key(expires_us=NOW_US + 1)
    client = bench.client()
    assert asked_again(bench, client, key) == 200
    bench.now_us += 1
    assert asked_again(bench, bench.client(), key) == 401
    bench.context.gate.epoch += 1
    assert asked_again(bench, client, key) == 401


def test_a_policy_that_changes(bench: ProxyBench) -> None:
    """The next request is decided under it: the last one's grant is not used."""
    client = bench.client()
    assert asked_again(bench, client, bench.key) == 200
    before = bench.context.gate.policy
    needs = ROUTES.replace("cost: 2", 'scopes: ["connectors:write"]')
    bench.use(policy_of(routes=needs))
    assert asked_again(bench, client, bench.key) == 403
    bench.use(replace(before, environment="test"))
    assert asked_again(bench, client, bench.key) == 401
    bench.use(before)
    assert asked_again(bench, client, bench.key) == 200


def last_amount(bench: ProxyBench) -> int:
    """The amount of the last check's limit."""
    limiter = bench.context.gate.limiter
    assert isinstance(limiter, PromptLimiter)
    assert limiter.last is not None
    return limiter.last.limits[0].amount


@pytest.mark.parametrize(("path", "amounts"), [(b"/open", [5, 7]), (b"/nowhere", [6000, 6002])])
def test_limits_without_a_key_that_change(
    bench: ProxyBench, path: bytes, amounts: list[int]
) -> None:
    """On open routes and for failed authentications, the next request is counted by the new one."""
    changed = policy_of(
        routes=ROUTES.replace("5/minute", "7/minute"),
        gateway="environment: production\nfailed_auth: {rate: 6002/minute}\n",
    )
    client, found = bench.client(), []
    for policy in (bench.context.gate.policy, changed):
        bench.use(policy)
        client.send(NO_KEY % path)
        bench.answer()
        found.append(last_amount(bench))
    assert found == amounts


def test_a_policy_that_changes_while_a_body_arrives(bench: ProxyBench) -> None:
    """That request keeps the limits that it began with, and the next one has the new ones."""
    routes = ROUTES.replace("GET /open,", '"* /open",').replace(
        "limits:", "cost: {json: ., max: 5}, limits:"
    )
    bench.use(policy_of(routes=routes))
    sent = NO_KEY % b"/open"
    head = sent.replace(b"GET", b"POST").replace(
        b"\r\n\r\n", b"\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n"
    )
    client = bench.client()
    client.send(head + b"[1,")
    bench.use(policy_of(routes=routes.replace("5/minute", "7/minute")))
    client.send(b"2]")
    bench.loop.run_all()
    assert last_amount(bench) == 5
    bench.answer()
    client.send(head + b"[1,2]")
    bench.loop.run_all()
    assert last_amount(bench) == 7


def test_keys_on_one_connection_are_separate(bench: ProxyBench) -> None:
    """Several keys on a connection are counted separately, and a bad one is refused."""
    client = bench.client()
    keys = [bench.add_key(), bench.add_key(), bench.unknown_key()]
    limiter = bench.context.gate.limiter
    assert isinstance(limiter, PromptLimiter)
    for key, expected in zip(keys * 3, [200, 200, 401] * 3, strict=True):
        assert asked_again(bench, client, key) == expected
        assert limiter.last is not None
        (counter,) = limiter.last.counters
        known = bench.identities.get(key)
        assert (counter.find(known.record.id) >= 0) if known else counter.find("ip") >= 0
    client.send(NO_KEY % b"/plain")
    assert status_of(client) == 401


def test_a_key_by_another_client_of_a_proxy(bench: ProxyBench) -> None:
    """Where the key may be used from is decided for each client, also on one connection."""
    peer = bench.client().connection.client.ip
    bench.use(replace(bench.context.gate.policy, trusted_proxies=(parse_network(peer),)))
    key = bench.add_key(networks=ELSEWHERE)
    clients = bench.client(), bench.client()
    for address, expected in [("203.0.113.7", 200), ("192.0.2.7", 403), ("203.0.113.8", 200)] * 2:
        for client in clients:
            sent = request(key, "/plain")[:-2] + f"X-Forwarded-For: {address}\r\n\r\n".encode()
            client.send(sent)
            bench.answer()
            assert status_of(client) == expected, address


def test_a_known_key_is_found_once(bench: ProxyBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A next request with it is not looked up again, also where its other fields differ."""
    client, directory = bench.client(), bench.context.gate.directory
    asked: list[str] = []
    known = directory.known

    def find(key_id: str) -> Identity | Absent | None:
        asked.append(key_id)
        return known(key_id)

    monkeypatch.setattr(directory, "known", find)
    for number in range(3):
        client.send(request(bench.key, "/plain")[:-2] + b"X-Number: %d\r\n\r\n" % number)
        bench.answer()
        assert status_of(client) == 200
    assert asked == [bench.identities[bench.key].record.id]


def _changed(key: str, at: int) -> str:
    return f"{key[:at]}{'a' if key[at] != 'a' else 'b'}{key[at + 1 :]}"


@pytest.mark.parametrize("is_known_first", [True, False])
def test_every_character_of_a_key_counts(bench: ProxyBench, is_known_first: bool) -> None:
    """A text that has a cached key's id is not that key: changed, longer or shorter anywhere."""
    key = bench.key
    changed = [_changed(key, at) for at in range(len(key))]
    others = [key[1:], key[:-1], f"x{key}", f"{key}x", key.upper(), "x" * 9_000 + key]
    client = bench.client()
    if is_known_first:
        assert asked_again(bench, client, key) == 200
    for text in (*changed, *others):
        assert asked_again(bench, client, text) == 401, text
        assert asked_again(bench, client, key) == 200


def test_a_known_key_on_another_route(bench: ProxyBench) -> None:
    """Its grant is found for each route, in any order."""
    client = bench.client()
    paths = ["/plain", "/scoped", "/plain", "/area", "/open", "/scoped", "/plain"]
    statuses = [asked_again(bench, client, bench.key, path) for path in paths]
    assert statuses == [200, 403, 200, 403, 200, 403, 200]


# -- answers that come later -----------------------------------------------------------------------
class SlowLimiter:
    """A limiter that decides when the test says so. released: leases that were released."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Check, Callable[[Decision | None], None]]] = []

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        self.waiting.append((check, done))

    def release(self, check: Check) -> None: ...

    def answer(self, allowed: bool | None) -> None:
        """Decide the oldest check; None: the limiter is unavailable."""
        check, done = self.waiting.pop(0)
        if allowed is None:
            done(None)
        else:
            PromptLimiter(allowed=allowed).decide(check, done)


@pytest.mark.parametrize(
    ("found", "status"), [("identity", 200), (Absent.UNKNOWN, 401), (Absent.UNAVAILABLE, 503)]
)
def test_a_key_that_is_looked_up(bench: ProxyBench, found: Any, status: int) -> None:
    """The request waits for the store's answer, and pipelined ones wait as well."""
    directory = ScriptedDirectory()
    bench.context.gate.directory = directory
    client = bench.client()
    client.send(request(bench.key, "/plain") + NO_KEY % b"/nowhere")
    identity = bench.identities[bench.key]
    assert directory.asked == [identity.record.id]
    assert client.statuses == []
    directory.answer(identity if found == "identity" else found)
    bench.answer()
    bench.loop.run_all()
    assert client.statuses == [status, 404]


@pytest.mark.parametrize(
    ("found", "check"),
    [
        ("identity", ("plan", "key", 0)),
        (Absent.UNKNOWN, ("failed_auth", "ip", 1)),
        (Absent.UNAVAILABLE, ("failed_auth", "ip", 0)),
    ],
)
@pytest.mark.parametrize("path", ["/nowhere", "/a b"], ids=["404", "400"])
def test_the_key_of_a_faulty_request_is_looked_up(
    bench: ProxyBench, found: Any, check: tuple[str, str, int], path: str
) -> None:
    """The answer is that of the fault, whatever the store says of the key."""
    directory = ScriptedDirectory()
    bench.context.gate.directory = directory
    client = bench.client()
    client.send(request(bench.key, path))
    identity = bench.identities[bench.key]
    assert (directory.asked, client.statuses) == ([identity.record.id], [])
    directory.answer(identity if found == "identity" else found)
    assert client.statuses == [404 if path == "/nowhere" else 400]
    assert last_check(bench) == check


@pytest.mark.parametrize("path", ["/nowhere", "/a b"], ids=["404", "400"])
def test_a_fault_stays_the_answer(bench: ProxyBench, path: str) -> None:
    """Also beyond the limit on failed authentications, as without a key."""
    bench.use_limiter(PromptLimiter(allowed=False))
    for key in (bench.unknown_key(), bench.add_key(status="suspended"), bench.key):
        client = bench.client()
        client.send(request(key, path))
        assert client.statuses == [404 if path == "/nowhere" else 400]


def test_only_its_address_is_reported_for_a_faulty_request_with_two_keys(bench: ProxyBench) -> None:
    """Two keys that differ are none, in a head that can be read as in one that cannot."""
    other = bench.add_key()
    for line in (b"GET /nowhere HTTP/1.1", b"GET /a b HTTP/1.1"):
        client = bench.client()
        client.send(
            b"%b\r\nHost: x\r\nAuthorization: Bearer %b\r\napiKey: %b\r\n\r\n"
            % (line, bench.key.encode(), other.encode())
        )
        assert last_check(bench) == (*FAILED, 0)


@pytest.mark.parametrize(("allowed", "status"), [(True, 200), (False, 429), (None, 503)])
def test_a_decision_that_comes_later(bench: ProxyBench, allowed: bool | None, status: int) -> None:
    """Nothing is sent to the upstream before the limiter has decided."""
    limiter = SlowLimiter()
    bench.use_limiter(limiter)
    client = bench.client()
    client.send(request(bench.key, "/plain"))
    assert bench.asked() is None
    assert client.statuses == []
    limiter.answer(allowed)
    bench.answer(OK)
    assert client.statuses == [status]


@pytest.mark.parametrize("waits_for", ["limiter", "directory"])
def test_a_client_that_does_not_wait(bench: ProxyBench, waits_for: str) -> None:
    """Its request has ended when the decision arrives, and nothing is sent for it."""
    limiter, directory = SlowLimiter(), ScriptedDirectory()
    if waits_for == "limiter":
        bench.use_limiter(limiter)
    else:
        bench.context.gate.directory = directory
    client = bench.client()
    client.send(request(bench.key, "/plain"))
    client.end()
    bench.loop.run_all()
    if waits_for == "limiter":
        limiter.answer(True)
    else:
        directory.answer(bench.identities[bench.key])
    assert bench.asked() is None
    assert client.statuses == []
    assert bench.metrics.inflight == 0


@pytest.mark.parametrize("found", ["identity", Absent.UNKNOWN, Absent.UNAVAILABLE])
def test_a_client_that_leaves_during_its_look_up(bench: ProxyBench, found: Any) -> None:
    """Nothing is counted for its request, whatever the store says of its key."""
    limiter, directory = PromptLimiter(), ScriptedDirectory()
    bench.use_limiter(limiter)
    bench.context.gate.directory = directory
    client = bench.client()
    client.send(request(bench.key, "/plain"))
    client.end()
    bench.loop.run_all()
    directory.answer(bench.identities[bench.key] if found == "identity" else found)
    assert limiter.asked == 0
    assert client.connection.cache.identity is None


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://gateway.test/plain", b"Gateway.TEST", 200),
        (b"http://GATEWAY.test/plain", b"gateway.test", 200),
        (b"http://gateway.TEST/plain", b"GATEWAY.test:80", 200),
        (b"http://gateway.test/plain", b"Other.test", 400),
        (b"http://gateway.test/plain", b"GATEWAY.test:81", 400),
    ],
)
def test_the_host_of_an_absolute_target(
    bench: ProxyBench, target: bytes, host: bytes, status: int
) -> None:
    """Host names it, whatever the case of either; another host or port is refused."""
    client = bench.client()
    sent = request(bench.key, "/plain").replace(b"GET /plain", b"GET " + target)
    client.send(sent.replace(b"Host: gateway.example", b"Host: " + host))
    bench.answer()
    assert client.statuses == [status]


@pytest.mark.parametrize(
    ("fields", "is_named"), [({"status": "revoked"}, True), ({"digest": bytes(32)}, False)]
)
def test_whose_a_failed_authentication_is(
    bench: ProxyBench, fields: dict[str, Any], is_named: bool
) -> None:
    """Its own key's, which the access log names; nobody's, if only the id was right."""
    limiter = SlowLimiter()
    bench.use_limiter(limiter)
    client = bench.client()
    key = bench.add_key(**fields)
    client.send(request(key, "/plain"))
    exchange = client.connection.exchange
    assert exchange is not None
    assert exchange.identity is (bench.identities[key] if is_named else None)
    limiter.answer(True)
    assert client.statuses == [401]


def test_cached_request_lines_are_bounded(
    bench: ProxyBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients choose their lines: neither many different ones nor long ones fill the memory."""
    monkeypatch.setattr("gateway.proxy.gate.MOST_LINES", 8)
    gate, kept = bench.context.gate, []
    for number in range(50):
        line = b"GET /plain?%d HTTP/1.1" % number
        assert gate.requested(line) is gate.requested(line)
        kept.append(len(gate.lines))
    assert max(kept) == 8
    short = b"GET /plain? HTTP/1.1"
    longest = short.replace(b"?", b"?" + b"x" * (MOST_LINE_BYTES - len(short)))
    too_long = longest.replace(b"?", b"?x")
    for line, is_kept in ((longest, True), (too_long, False)):
        gate.requested(line)
        assert (line in gate.lines) is is_kept


MAINTENANCE = """
routes:
  api:  {match: "* /api/**", upstream: api, plan_limits: false, rate: 1/day}
  live: {match: GET /live, upstream: api, auth: none, maintenance: false}
  open: {match: GET /open, upstream: api, auth: none}
  page: {match: GET /page, upstream: api, auth: none, cors: {origins: ["https://a.test"]}}
maintenance: {message: Back soon., retry_after: 90s, allow: [192.0.2.0/24]}
trusted_proxies: [127.0.0.1]
"""


async def test_maintenance(start: Start) -> None:
    """503 at no cost, with the limits of the key; the gateway's paths and other routes stay."""
    bench = await start(files={"routes": MAINTENANCE})
    async with await bench.connect() as wire:
        for target, headers in (("/api/x", bench.auth), ("/open", []), ("/api/x", [])):
            for method in ("GET", "HEAD", "POST"):
                if target == "/open" and method == "POST":
                    continue
                response = await wire.request(method, target, headers)
                assert (response.status, response["Retry-After"]) == (503, "90")
                if method != "HEAD":
                    assert response.json()["message"] == "Back soon."
                    assert response.json()["code"] == "MAINTENANCE"
                assert (response["X-RateLimit-Limit"] == "1") is bool(headers)
        for target, status in (("/live", 200), ("/health", 200), ("/nowhere", 404)):
            assert (await wire.request("GET", target)).status == status
        assert (await wire.request("GET", "/v1/auth/verify", bench.auth)).status == 200
        asked = [("Origin", "https://a.test"), ("Access-Control-Request-Method", "GET")]
        assert (await wire.request("OPTIONS", "/page", asked)).status == 204
        page = await wire.request("GET", "/page", [("Origin", "https://a.test")])
        assert (page.status, page["Access-Control-Allow-Origin"]) == (503, "https://a.test")
    assert bench.gateway.metrics._refusals[("maintenance",)] == 9


async def test_maintenance_admits_some(start: Start) -> None:
    """As always: with the limits of the route, also for requests with a body."""
    bench = await start(files={"routes": MAINTENANCE})
    inside = ("X-Forwarded-For", "192.0.2.7")
    async with await bench.connect() as wire:
        for status in (200, 429):
            response = await wire.request("POST", "/api/x", [*bench.auth, inside], b"x")
            assert response.status == status
        outside = [*bench.auth, ("X-Forwarded-For", "192.0.3.7")]
        assert (await wire.request("POST", "/api/x", outside, b"x")).status == 503
        assert (await wire.request("GET", "/api/x", [inside])).status == 401


def test_maintenance_hides_no_other_fault(bench: ProxyBench) -> None:
    """A body that is too large is refused for clients that are served as for others."""
    peer = bench.client().connection.client.ip
    routes = MAINTENANCE.replace("192.0.2.0/24", peer).replace("trusted_proxies: [127.0.0.1]", "")
    bench.use(replace(policy_of(routes=routes), bounds=Bounds(body_bytes=10)))
    client = bench.client()
    client.send(request(bench.key, "/api/x", "POST", b"x" * 10))
    bench.answer()
    client.send(request(bench.key, "/api/x", "POST", b"x" * 11))
    assert bench.asked() is None
    assert client.statuses == [200, 413]
