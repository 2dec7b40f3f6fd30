"""The admin listener in this process, with stores in memory, for tests of its pages.

`fill` adds what a gateway has after a month of use, so that every page has something to show.
"""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import aiohttp

from gateway.admin.access import Access
from gateway.admin.app import AdminDeps, build_admin
from gateway.admin.listener import AdminServer
from gateway.admin.readiness import Readiness
from gateway.admin.sessions import Sessions
from gateway.domain.keys import KeyRecord
from gateway.domain.policy import AdminProxy
from gateway.domain.policy_history import PolicyLoad
from gateway.domain.ports import AdminStore, UsageBatch
from gateway.domain.usage import Measures
from gateway.domain.warnings import LimitWarning
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.audit_log import Actor
from gateway.manage.management import Management, build_management
from gateway.manage.policies import Loaded
from gateway.manage.policy_changes import compare, summary
from gateway.manage.webhooks import build_webhooks
from gateway.observe.metrics import Metrics
from gateway.policies.load import load, load_texts
from gateway.runtime.sockets import bind
from gateway.stores.admin import MemoryAdminStore
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.managed import ManagedStores, memory_managed
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.opening import open_webhooks
from gateway.webhooks.sealing import Sealer

#: The webhook key.
MASTER = b"m" * 32
TOKEN = "the-admin-token-of-the-tests"
ANNA = Actor("anna", "console", "127.0.0.1")
SHIPPED = Path(__file__).parents[2] / "policies"


@dataclass
class Answer:
    """A page. headers: of the last answer, after all redirects"""

    status: int
    text: str
    path: str
    headers: Mapping[str, str]


class Browser:
    """Requests pages and sends forms, keeping cookies; it runs no scripts."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.csrf = ""

    async def get(self, path: str, **options: object) -> Answer:
        return await self._ask("GET", path, **options)

    async def post(self, path: str, fields: Mapping[str, str], **options: object) -> Answer:
        """Send a form with the session's CSRF token, unless the fields have another."""
        return await self._ask("POST", path, data={"csrf": self.csrf, **fields}, **options)

    async def sign_in(self, name: str = "anna", token: str = TOKEN) -> Answer:
        answer = await self.post("/console/sign-in", {"name": name, "token": token, "next": ""})
        found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
        self.csrf = found[1] if found else ""
        return answer

    async def _ask(self, method: str, path: str, **options: object) -> Answer:
        asked = self.http.request(method, self.base + path, **options)  # type: ignore[arg-type]
        async with asked as response:
            text = await response.text()
            path = response.url.path_qs
            return Answer(response.status, text, path, dict(response.headers))


@dataclass
class Console:
    """An admin listener on a free port of 127.0.0.1, from its `async with` on."""

    policies: Path = SHIPPED
    is_managed: bool = True
    keys: MemoryKeyStore = field(default_factory=MemoryKeyStore)
    #: Shares ended sessions between gateways on one store.
    admin: AdminStore = field(default_factory=MemoryAdminStore)
    #: The proxy in front of it; by default, none.
    proxy: AdminProxy = field(default_factory=AdminProxy)
    tls: ssl.SSLContext | None = None
    #: The URL of a Redis for webhooks; None: there are none.
    webhooks_at: str | None = None
    #: Added to the time of sessions, in seconds.
    later_s: float = 0.0
    #: What a readiness probe is told.
    checks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.limiter = MemoryLimiter(now_us)
        self.metrics = Metrics("test")
        self.stores: ManagedStores = memory_managed(self.keys, self.limiter)
        self.loaded = Loaded(load(self.policies), now_us(), self.policies)
        self._redis = (
            None if self.webhooks_at is None else redis_client(parse_url(self.webhooks_at))
        )
        webhooks = None
        if self._redis is not None:
            self.webhook_stores = open_webhooks(executing(self._redis), WebhookSettings)
            webhooks = build_webhooks(
                *(self.webhook_stores, self.stores.audit, MASTER, Sealer(MASTER), now_us)
            )
        self.management: Management = build_management(
            keys=self.keys,
            usage=self.stores.usage,
            warnings=self.stores.warnings,
            audit=self.stores.audit,
            counts=self.stores.counters,
            policies=self.stores.policies,
            connections=self.stores.connections,
            loaded=lambda: self.loaded,
            clock_us=now_us,
            snapshot=self.metrics.snapshot,
            webhooks=webhooks,
        )

    async def __aenter__(self) -> Console:
        deps = AdminDeps(
            Access(TOKEN),
            Sessions(TOKEN, self.admin),
            self.management if self.is_managed else None,
            proxy=lambda: self.proxy,
            clock=lambda: time.time() + self.later_s,
        )
        tls = self.tls
        self._server = AdminServer(build_admin(_scrape, self._ready, deps), tls and (lambda: tls))
        await self._server.start(bind("127.0.0.1", 0, 1)[0])
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.port}"
        self._browsers: list[Browser] = []
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for browser in self._browsers:
            await browser.http.close()
        await self._server.stop()
        if self._redis is not None:
            await self._redis.aclose()

    async def _ready(self) -> Readiness:
        return Readiness(True, self.checks)

    def browser(self) -> Browser:
        """A browser that has not signed in."""
        browser = Browser(self.url)
        self._browsers.append(browser)
        return browser

    async def signed_in(self) -> Browser:
        browser = self.browser()
        answer = await browser.sign_in()
        assert answer.path == "/console", answer.text
        assert browser.csrf
        return browser

    async def key(self, name: str = "ci", **given: object) -> KeyRecord:
        """Create a key, as users do."""
        fields = {"name": name, "plan": "free", **given}
        record, _ = await self.management.keys.create(ANNA, self.management.keys.read_new(fields))
        return record


def now_us() -> int:
    return time.time_ns() // 1000


async def fill(console: Console) -> dict[str, KeyRecord]:
    """Keys of every status, a month of use, accounts and entries; returns the keys by name."""
    chance = random.Random(7)
    await console.management.accounts.put(
        ANNA,
        "acme",
        {"plan": "pro", "services": ["ticketing", "billing"], "limits": {"search": "300/minute"}},
        must_be_new=True,
    )
    await console.management.accounts.put(ANNA, "globex", {"services": ["scm"]}, must_be_new=True)
    made = {
        "Acme storefront": await console.key("Acme storefront", account="acme", plan="enterprise"),
        "Acme nightly import": await console.key(
            "Acme nightly import",
            account="acme",
            scopes=["connectors:read", "connectors:write"],
            permissions={"ticketing": ["read", "write"]},
            ip_ranges=["192.0.2.0/24", "2001:db8::/32"],
            expires="90d",
            limits={"plan": "900/minute,burst=1500", "search": "120/minute"},
        ),
        "Globex mobile app": await console.key("Globex mobile app", account="globex", plan="pro"),
        "Trial of Initech": await console.key("Trial of Initech", expires="14d"),
        "Old crawler": await console.key("Old crawler", plan="free"),
        "Paused partner": await console.key("Paused partner", plan="pro"),
    }
    keys = console.management.keys
    await keys.suspend(ANNA, made["Paused partner"].id)
    await keys.revoke(ANNA, made["Old crawler"].id)
    await keys.rotate(ANNA, made["Globex mobile app"].id, 86_400_000_000)
    old = await console.key("Last year's test", plan="free")
    await console.keys.replace(old, replace(old, expires_us=now_us() - 3_600_000_000))
    storefront = made["Acme storefront"].id
    for level in (80, 100):
        await console.stores.warnings.warn(
            LimitWarning("a", level, "search", "enterprise", storefront, now_us(), 60_000_000)
        )
    await _record(console)
    shares = {"Acme storefront": 90, "Acme nightly import": 40, "Trial of Initech": 12}
    await _use(console, {made[name].id: share for name, share in shares.items()}, chance)
    await _use_mcp(console, {made["Acme storefront"].id: 3, made["Trial of Initech"].id: 1})
    await console.keys.touch((made[name].id for name in shares), now_us() - 150_000_000)
    for number, made_now in enumerate(made.values()):
        record = await console.keys.get(made_now.id)
        assert record is not None
        long_ago_us = now_us() - (45 * 24 - number) * 3_600_000_000
        await console.keys.replace(record, replace(record, created_us=long_ago_us))
    return made


async def _record(console: Console) -> None:
    """The loaded policy, and another one before it."""
    policy, history = console.loaded.policy, console.management.history
    assert policy.source is not None
    assert policy.source.texts is not None
    texts = {
        name: text.replace("30/minute", "20/minute") for name, text in policy.source.texts.items()
    }
    before = load_texts(console.policies, texts)
    gateway, words = "gateway-1 0.0.0.0:8080", summary(compare(before, policy), 500)
    start = PolicyLoad(now_us() - 86_400_000_000, before.hash, "", "start", gateway, "")
    await history.record(start, before)
    change = PolicyLoad(now_us(), policy.hash, before.hash, "file change", gateway, words)
    await history.record(change, policy)


async def _use(console: Console, shares: Mapping[str, int], chance: random.Random) -> None:
    minute = now_us() // 60_000_000
    for number, back in enumerate([*range(29 * 1440, 1440, -240), *range(1440, -1, -5)]):
        counts: dict[tuple[str, str, str], int] = {}
        measures: dict[tuple[str, str], Measures] = {}
        for key_id, share in shares.items():
            record = await console.keys.get(key_id)
            assert record is not None
            busy = round(share * (1.3 - abs((minute - back) % 1440 - 720) / 720))
            parts = {
                ("api", "admitted:2xx"): busy + chance.randrange(8),
                ("search", "admitted:2xx"): busy // 2 + chance.randrange(4),
                ("search", "limited:search"): chance.randrange(1 + busy // 6),
                ("api", "limited:plan"): chance.randrange(1 + busy // 20),
                ("connectors", "refused:insufficient_scope"): chance.randrange(2 + busy // 30),
                ("api", "failed:upstream_timeout"): chance.randrange(2),
                ("search", "failed:5xx"): busy // 30,
            }
            for (route, outcome), requests in parts.items():
                if requests:
                    counts[f"key:{key_id}", route, outcome] = requests
                    plan = f"plan:{record.plan}"
                    counts[plan, route, outcome] = counts.get((plan, route, outcome), 0) + requests
                    if outcome == "admitted:2xx":
                        bucket = 30 if route == "api" else 38
                        one = Measures(0, 1_800 * requests, {bucket: requests})
                        for subject in (f"key:{key_id}", plan):
                            measures.setdefault((subject, route), Measures()).add(one)
        counts["plan:", "none", "refused:key_unknown"] = 1 + chance.randrange(5)
        await console.stores.usage.add(
            UsageBatch("w", number + 1, (minute - back) * 60, counts, measures)
        )


async def _use_mcp(console: Console, connected: Mapping[str, int]) -> None:
    """Open connections, and calls of tools in the last day."""
    await console.stores.connections.report("w", connected)
    parts = {
        ("search_code", "admitted:2xx"): 41,
        ("search_code", "limited:mcp/search_code"): 6,
        ("delete_ticket", "admitted:2xx"): 3,
        ("delete_ticket", "refused:tool_not_permitted"): 9,
        ("debug_dump", "refused:tool_unknown"): 1,
        ("a.tool/with-a-very-long-name-that-no-table-cell-can-break-" * 2, "failed:5xx"): 2,
        ("other", "admitted:2xx"): 17,
    }
    minute = now_us() // 60_000_000
    for number, back in enumerate(range(1440, -1, -90), 1):
        counts = {("mcp:mcp", *part): calls + back % 7 for part, calls in parts.items()}
        await console.stores.usage.add(UsageBatch("tools", number, (minute - back) * 60, counts))


async def _scrape(_accept: str) -> tuple[bytes, str]:
    return b"", "text/plain"
