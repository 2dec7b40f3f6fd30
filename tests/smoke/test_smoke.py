"""What the README promises, once through real sockets and processes.

One gateway as users run it, with a worker, a courier and an admin listener, in front of a scripted
upstream and on a Redis of its own. Each step is a promise; other folders test each of them closely.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from gateway_client.webhooks import verify

from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway, command
from tests.kit.hooks import ENVIRONMENT, Provider, Receiver, add_account
from tests.kit.hooks import ROUTES as HOOK_ROUTES
from tests.kit.mcp_sessions import JSON, VERSION, message
from tests.kit.policies import PLANS, ROUTES, write_policies
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response, echo
from tests.kit.wire import Response

_MCP = """
  mcp:
    match: "* /mcp/**"
    upstream: api
    plan_limits: false
    mcp: {tools: {search: {rate: 1/minute}, "*": allow}}
"""
_RESULT = b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}'


async def answer(exchange: Exchange) -> None:
    """An MCP server below /mcp, an echo elsewhere."""
    if exchange.request.target.startswith("/mcp"):
        await exchange.read_body()
        await exchange.write(build_response(200, _RESULT, [JSON]))
    else:
        await echo(exchange)


def run(store: str, *words: str) -> dict[str, str]:
    """A command of an operator; its JSON."""
    line = command(*words, "--store", store, "--json")
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


class Smoke:
    """The running site, and what an operator and a customer do with it."""

    def __init__(self, gateway: ServedGateway, upstream: ScriptedUpstream, store: str) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.store = store

    def create_key(self, plan: str, *options: str) -> tuple[str, str]:
        """The id and the text of a new key."""
        policies = ("--policies", str(self.gateway.policies))
        made = run(
            self.store, "keys", "create", "--name", "ci", "--plan", plan, *policies, *options
        )
        return made["id"], made["key"]

    async def ask(self, key: str, target: str = "/api/x") -> Response:
        return await self.gateway.fetch(target, key=key)

    async def reports(self, metric: str) -> bool:
        """Has a scrape this line?"""
        return metric in (await self.gateway.metrics()).splitlines()

    async def call(self, key: str, tool: str) -> Response:
        """A call of an MCP tool."""
        return await self.gateway.fetch(
            "/mcp/x",
            key=key,
            method="POST",
            headers=[JSON, VERSION],
            body=message("tools/call", name=tool),
        )

    async def admits_and_refuses(self) -> None:
        """200 with the limit's headers, 401 without a valid key, 403 without a scope, then 429."""
        _, key = self.create_key("free")
        admitted = await self.ask(key)
        assert admitted.status == 200
        assert admitted["X-RateLimit-Limit"] == "60"
        assert admitted["X-RateLimit-Remaining"] == "59"
        received = self.upstream.requests[-1]
        assert received.target == "/api/x"
        assert key not in received.raw_head.decode()
        unknown = await self.gateway.fetch("/api/x")
        assert (unknown.status, unknown.json()["code"]) == (401, "INVALID_API_KEY")
        forbidden = await self.ask(key, "/v1/connectors")
        assert (forbidden.status, forbidden.json()["code"]) == (403, "INSUFFICIENT_SCOPE")
        assert (await self.ask(key, "/api/search/x")).status == 200
        statuses = [(await self.ask(key, "/api/search/x")).status for _ in range(30)]
        assert statuses == [200] * 29 + [429]
        limited = await self.ask(key, "/api/search/x")
        assert limited["X-RateLimit-Remaining"] == "0"
        assert 0 < int(limited["Retry-After"]) <= 61

    async def reloads(self) -> None:
        """A policy that is edited takes effect without a restart, and a broken one does not."""
        _, key = self.create_key("pro")
        plans = self.gateway.policies / "plans.yaml"

        async def has_limit(expected: str) -> bool:
            return (await self.ask(key, "/v1/auth/verify"))["X-RateLimit-Limit"] == expected

        assert await has_limit("600")
        replace(plans, PLANS.replace("rate: 600/minute", "rate: 700/minute"))
        await eventually(lambda: has_limit("700"), "the new limit holds")
        replace(plans, "plans: none\n")
        await eventually(lambda: self.reports("gateway_policy_faulty 1.0"), "faults are reported")
        assert await has_limit("700")
        replace(plans, PLANS)
        await eventually(lambda: self.reports("gateway_policy_faulty 0.0"), "none are left")

    async def revokes(self) -> None:
        """A revoked key gets 401."""
        key_id, key = self.create_key("free")
        assert (await self.ask(key)).status == 200
        run(self.store, "keys", "revoke", key_id)

        async def is_refused() -> bool:
            return (await self.ask(key)).status == 401

        await eventually(is_refused, "the key is refused")

    async def calls_tools(self) -> None:
        """A call of an MCP tool passes, and the tool's limit refuses the next one."""
        _, key = self.create_key("free")
        passed = await self.call(key, "search")
        assert (passed.status, passed.body) == (200, _RESULT)
        refused = await self.call(key, "search")
        assert refused.status == 429
        assert refused.json()["id"] == 7
        assert (await self.call(key, "other")).status == 200

    async def outlives(self, redis: RedisServer) -> None:
        """Without Redis known keys are served and limited; with it again, they are as before."""
        _, key = self.create_key("free", "--limit", "search=20/minute")
        assert (await self.ask(key)).status == 200
        redis.kill()

        await eventually(lambda: self.reports("gateway_store_up 0.0"), "the loss is noticed")
        statuses = [(await self.ask(key, "/api/search/x")).status for _ in range(21)]
        assert statuses == [200] * 20 + [429]
        redis.start()
        await eventually(lambda: self.reports("gateway_store_up 1.0"), "Redis is available again")


def replace(path: Path, text: str) -> None:
    """As an editor does: beside it, then renamed."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


async def test_what_the_readme_promises(tmp_path: Path) -> None:
    """Keys, limits, headers, reload, revocation, MCP, webhooks, and an outage of Redis."""
    certificate = make_certificate(tmp_path / "tls", ["127.0.0.1"])
    redis = RedisServer(*DURABLE).start()
    try:
        async with Receiver(certificate) as receiver, ScriptedUpstream(answer) as upstream:
            account = await add_account(redis.url, {"/a": receiver.at("/a")})
            policies = write_policies(
                tmp_path / "policies",
                upstream.url,
                routes=ROUTES.replace(
                    "\n  search:", _MCP + HOOK_ROUTES.split("\n")[2] + "\n  search:"
                ),
                webhooks=f"webhooks: {{ca: {certificate.ca}, allow: [127.0.0.0/8]}}\n",
            )
            async with ServedGateway(
                *(tmp_path / "gateway", policies, redis.url, "--couriers", "1"),
                environment=ENVIRONMENT,
            ) as gateway:
                smoke = Smoke(gateway, upstream, redis.url)
                await smoke.admits_and_refuses()
                await smoke.reloads()
                await smoke.revokes()
                await smoke.calls_tools()
                sent = await Provider(account.integration).send_accepted(gateway, 1)
                await eventually(lambda: not receiver.lacks(sent, ["/a"]), "the event is delivered")
                delivered = receiver.requests[-1]
                verify(delivered.body, dict(delivered.headers), [account.secret("/a")])
                await smoke.outlives(redis)
    finally:
        redis.stop()
