"""The admin listener on a free port, over stores in this process."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from gateway.admin.access import Access
from gateway.admin.app import AdminDeps, build_admin
from gateway.admin.listener import AdminServer
from gateway.admin.readiness import Readiness
from gateway.admin.sessions import Sessions
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import Counted
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.management import Management, build_management
from gateway.manage.policies import Loaded
from gateway.manage.webhooks import Webhooks, build_webhooks
from gateway.policies.load import load
from gateway.runtime.sockets import bind
from gateway.stores.admin import MemoryAdminStore
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.limits.counters import MemoryCounters
from gateway.stores.mcp.memory import MemoryConnectionStore
from gateway.stores.policies.memory import MemoryPolicyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.usage.memory import MemoryUsageStore
from gateway.stores.warnings.memory import MemoryWarningStore
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.opening import open_webhooks
from gateway.webhooks.sealing import Sealer
from tests.kit.policies import write_policies

TOKEN = "correct-horse-battery-staple"
#: The webhook key.
MASTER = b"m" * 32
READY = Readiness(True, {"store": "ok", "policies": "ok"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. json: None: it has no body"""

    status: int
    headers: Mapping[str, str]
    json: Any

    @property
    def etag(self) -> dict[str, str]:
        """The header that makes a change conditional on this version."""
        return {"If-Match": self.headers["ETag"]}


class Failing:
    """A store whose methods raise `failure`, while there is one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*arguments: Any, **named: Any) -> Any:
            if self.failure is not None:
                raise self.failure
            return await getattr(self._inner, name)(*arguments, **named)

        return ask


class AdminScene:
    """A listener, its stores, and a client. now_s: the time of sign-in attempts and sessions

    managed: False: like a gateway whose keys no other process can reach
    clock:   replaces now_s
    webhooks_at: the URL of a Redis for webhooks; None: there are none
    """

    def __init__(
        self,
        folder: Path,
        *,
        managed: bool = True,
        names: tuple[str, ...] = ("gate.internal",),
        clock: Callable[[], float] | None = None,
        webhooks_at: str | None = None,
    ) -> None:
        self.now_s = 1_000.0
        self.policy = load(write_policies(folder / "policies", "http://127.0.0.1:9"))
        self.loaded = Loaded(self.policy, clock_us(), folder / "policies")
        self.keys = Failing(MemoryKeyStore())
        self.usage = MemoryUsageStore()
        self.warnings = MemoryWarningStore()
        self.audit = MemoryAuditStore()
        self.policies = MemoryPolicyStore()
        self.connections = MemoryConnectionStore()
        self.limiter = MemoryLimiter(clock_us)
        self._client = None if webhooks_at is None else redis_client(parse_url(webhooks_at))
        self.webhooks: Webhooks | None = None
        self.webhook_settings = WebhookSettings()
        if self._client is not None:
            self.webhook_stores = open_webhooks(
                executing(self._client), lambda: self.webhook_settings
            )
            self.webhooks = build_webhooks(
                *(self.webhook_stores, self.audit, MASTER, Sealer(MASTER), clock_us)
            )
        self.management: Management = build_management(
            keys=self.keys,  # type: ignore[arg-type]
            usage=self.usage,
            warnings=self.warnings,
            audit=self.audit,
            counts=MemoryCounters(self.limiter),
            policies=self.policies,
            connections=self.connections,
            loaded=lambda: self.loaded,
            clock_us=clock_us,
            webhooks=self.webhooks,
        )
        self.readiness = READY
        self.access = Access(TOKEN)
        self.admin_store = MemoryAdminStore()
        self.sessions = Sessions(TOKEN, self.admin_store)
        deps = AdminDeps(
            self.access,
            self.sessions,
            self.management if managed else None,
            names,
            proxy=lambda: self.loaded.policy.admin_proxy,
            error_docs=lambda: self.loaded.policy.error_docs,
            clock=clock or (lambda: self.now_s),
        )
        self.server = AdminServer(build_admin(self.scrape, self.ask_ready, deps))
        self._stack = AsyncExitStack()

    async def scrape(self, _accept: str) -> tuple[bytes, str]:
        return b"# nothing\n", "text/plain"

    async def ask_ready(self) -> Readiness:
        return self.readiness

    async def __aenter__(self) -> Self:
        if self._client is not None:
            self._stack.push_async_callback(self._client.aclose)
        await self.server.start(bind("127.0.0.1", 0, 1)[0])
        self._stack.push_async_callback(self.server.stop)
        self.client = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = TOKEN,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """Send one request; `path` below /admin/v1 unless it begins with another word."""
        target = path if path.startswith(("/admin", "/console", "/metrics")) else f"/admin/v1{path}"
        given = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with self.client.request(
            method,
            self.url(target),
            json=body,
            data=data,
            headers={**given, **(headers or {})},
            allow_redirects=False,
        ) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json" and text
            return Answer(answer.status, answer.headers, await answer.json() if is_json else None)

    async def make_key(self, **fields: object) -> dict[str, Any]:
        """Make a key by the API."""
        answer = await self.ask("POST", "/keys", {"name": "test", "plan": "free", **fields})
        assert answer.status == 201, answer.json
        return dict(answer.json)

    async def count(self, counts: dict[Counted, int]) -> None:
        """Count requests, as a worker does, in the current minute."""
        minute_s = int(time.time()) // 60 * 60
        await self.usage.add(UsageBatch("worker", 1, minute_s, counts))


def clock_us() -> int:
    return time.time_ns() // 1000
