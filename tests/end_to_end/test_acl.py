"""The least permissions that the gateway's user in Redis needs, as documented."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis

from gateway.cli.main import cli
from gateway.domain.audit import Trim, write_trim
from gateway.domain.limits import LEASE_US
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import MOST_BUSY, MOST_NOTED
from gateway.stores.managed import open_managed
from gateway.stores.names import AUDIT
from gateway.stores.redis.address import read_address
from tests.end_to_end.conftest import Serve
from tests.kit import gateway
from tests.kit.acl import COMMANDS, IN_A_CLUSTER, RULES, WEBHOOK_RULES
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway, create_key, keys_command
from tests.kit.redis_cluster import RedisCluster
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, ScriptedUpstream, echo
from tests.kit.wire import Wire, bearer, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

USER, SECRET = "gateway", "correct-horse-battery"
#: All routes, for one server.
ROUTES = """
routes:
  held: {match: GET /held, upstream: api, limits: [{name: held, concurrency: 5}]}
  near: {match: GET /near, upstream: api, limits: [{name: near, quota: 1/day}]}
  api:  {match: "* /**", upstream: api, limits: [{name: daily, quota: 1000/day}]}
"""


async def hold(exchange: Exchange) -> None:
    """On one path, a stream that ends when the client closes."""
    if exchange.request.target != "/held":
        await echo(exchange)
        return
    await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    await exchange.ended()
    raise ConnectionError


async def test_as_documented() -> None:
    """The documents list the same permissions."""
    text = " ".join((Path(__file__).parents[2] / "docs/store.md").read_text().split())
    assert f"ACL SETUSER gateway on >PASSWORD {' '.join(RULES)} " in text
    assert f"need `{' '.join(WEBHOOK_RULES)}` as well, unless" in text
    more = " ".join(f"+{name}" for name in IN_A_CLUSTER)
    assert f"In a cluster it needs `{more}` as well" in text


async def test_the_least_rights(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exactly these commands everything works and nothing is denied, and each of them is
    needed; the password is in no output.
    """
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", SECRET)
    monkeypatch.setitem(gateway._ENVIRONMENT, "GATEWAY_STORE_PASSWORD", SECRET)
    server = RedisServer().start()
    try:
        async with ScriptedUpstream(hold) as upstream, Redis(port=server.port) as admin:
            await admin.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{SECRET}", *RULES)
            await admin.execute_command("CONFIG", "RESETSTAT")
            url = f"redis://{USER}@127.0.0.1:{server.port}/1"
            served = await serve(upstream=upstream.url, store=url, routes=ROUTES)
            printed = await use_commands(url, served.policies, tmp_path)
            await use_gateway(served, url, Redis(port=server.port, db=1))
            await use_management(url)
            assert await served.stop() == 0
            assert [entry["object"] for entry in await admin.acl_log()] == []
            used = {
                name.removeprefix("cmdstat_").lower() for name in await admin.info("commandstats")
            }
            assert [name for name in COMMANDS if not is_used(name, used)] == []
        assert SECRET not in printed + served.output()
    finally:
        server.stop()


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """A cluster in which the user has the documented permissions on every node."""
    cluster = RedisCluster()
    try:
        cluster.start()
        for node in cluster.nodes:
            rules = (*RULES, *(f"+{name}" for name in IN_A_CLUSTER))
            cluster.ask(node, "ACL", "SETUSER", USER, "reset", "on", f">{SECRET}", *rules)
        yield cluster
    finally:
        cluster.stop()


async def test_the_least_rights_in_a_cluster(
    serve: Serve, cluster: RedisCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With these commands everything works, and no node's log has a denied one."""
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", SECRET)
    monkeypatch.setitem(gateway._ENVIRONMENT, "GATEWAY_STORE_PASSWORD", SECRET)
    url = cluster.url.replace("//", f"//{USER}@")
    async with ScriptedUpstream(hold) as upstream:
        served = await serve(upstream=upstream.url, store=url, routes=ROUTES)
        key_id, key = await create_key(url, served.policies)
        for path in ("/v1/auth/verify", "/api/x", "/near"):
            assert (await served.fetch(path, key=key)).status == 200
        await keys_command(url, "describe", key_id)
        await use_management(url)
        await keys_command(url, "revoke", key_id)

        async def is_refused() -> bool:
            return (await served.fetch("/api/x", key=key)).status == 401

        await eventually(is_refused, "the revoked key is refused")
        assert await served.stop() == 0
    for node in cluster.nodes:
        with node.client() as client:
            assert [entry["object"] for entry in client.acl_log()] == []


def is_used(name: str, used: set[str]) -> bool:
    """Servers before Redis 7 do not count subcommands separately."""
    return name in used or name.partition("|")[0] in used


async def use_commands(url: str, policies: Path, folder: Path) -> str:
    """Run every command that uses the store; return their output."""
    log = folder / "replay.log"
    entry = {"time": "2026-01-02T03:04:05.000000Z", "method": "GET", "path": "/api/x"}
    log.write_text(json.dumps(entry | {"key_id": "k", "account": "a", "plan": "free"}) + "\n")
    key_id, key = await create_key(url, policies, account="acme")
    other_id, _ = await create_key(url, policies)
    options = ["--policies", str(policies), "--store", url]
    printed = ""
    for words in (
        ["keys", "list", "--store", url],
        ["keys", "describe", key_id, "--store", url],
        ["keys", "usage", key_id, "--store", url],
        ["keys", "rotate", key_id, "--store", url],
        ["keys", "suspend", other_id, "--store", url],
        ["keys", "resume", other_id, "--store", url],
        ["keys", "revoke", other_id, "--store", url],
        ["accounts", "set", "acme", "--service", "ticketing", "--store", url],
        ["accounts", "list", "--store", url],
        ["accounts", "describe", "acme", "--store", url],
        ["explain", *options, "--key", key, "GET", "/api/x"],
        ["simulate", *options, str(log)],
        ["warnings", "--store", url],
        ["policies", "history", "--store", url],
        ["diff", str(policies), str(policies), "--store", url],
        ["audit", "--store", url],
        ["audit", "--verify", "--store", url],
    ):
        done = await asyncio.to_thread(CliRunner().invoke, cli, words)
        assert done.exit_code == 0, f"{words}: {done.output}"
        printed += done.output
    return printed


async def use_management(url: str) -> None:
    """The admin API's reads: usage, and more keys and routes than fit in one reply."""
    minute_s = int(time.time()) // 60 * 60
    keys = [(f"key:{number:012}", "api", "admitted") for number in range(2 * MOST_BUSY + 1)]
    routes = {("plan:free", f"r{number}", "admitted"): 1 for number in range(5_001)}
    async with open_managed(read_address(url)) as stores:
        await stores.usage.add(UsageBatch("writer", 1, minute_s, routes))
        for number, start in enumerate(range(0, len(keys), MOST_NOTED), 2):
            some = dict.fromkeys(keys[start : start + MOST_NOTED], 1)
            await stores.usage.add(UsageBatch("writer", number, minute_s, some))
        assert await stores.usage.busiest("minute", minute_s, minute_s + 60, 10)
        for subject in ("key:" + "0" * 12, "plan:free"):
            assert await stores.usage.read(subject, "minute", minute_s, minute_s + 60)
        await stores.usage.merge("writer", minute_s + 3_600)
        (first,) = await stores.audit.oldest(count=1)
        trim = write_trim(Trim(first.number, first.hash, True), minute_s * 1_000_000)
        await stores.audit.append(trim, drop_to=first.number)
        await stores.counters.reset(["gw:limit:{a}:key:a:daily:quota:86400000000"])

        async def is_warned() -> bool:
            return bool(await stores.warnings.newest())

        await eventually(is_warned, "a limit that was reached is warned of")


async def use_gateway(served: ServedGateway, url: str, admin: Redis) -> None:
    """Requests, a long lease and its release, last uses, a revocation."""
    key_id, key = await create_key(url, served.policies)
    count = f"gw:limit:{{{key_id}}}:key:{key_id}:held:concurrency:{LEASE_US}"

    async def lasts_until() -> float:
        return max([until for _, until in await admin.zrange(count, 0, -1, withscores=True)])

    assert (await served.fetch("/v1/auth/verify", key=key)).status == 200
    assert (await served.fetch("/api/x", key=key)).status == 200
    assert (await served.fetch("/near", key=key)).status == 200
    # As after a step back of the clock.
    await admin.zadd(count, {"1": 2**52})
    async with await Wire.connect(served.port) as wire:
        await wire.send(build_request("GET", "/held", bearer(key)))
        assert (await wire.read_head()).status == 200
        taken = await lasts_until()
        assert taken < 2**52

        async def is_renewed() -> bool:
            return await lasts_until() > taken

        await eventually(is_renewed, "the lease is renewed")

    async def is_released() -> bool:
        return await admin.zcount(count, taken, "+inf") == 0

    async def was_used() -> bool:
        return (await keys_command(url, "usage", key_id))["last_used"] is not None

    async def is_refused() -> bool:
        return (await served.fetch("/api/x", key=key)).status == 401

    await eventually(is_released, "the lease is released")
    await eventually(was_used, "its use is noted")
    # An entry with the highest possible id: the log must be moved aside.
    await admin.xadd(AUDIT, {"event": "foreign"}, id=f"{2**64 - 1}-1")
    await keys_command(url, "revoke", key_id)
    await eventually(is_refused, "the revoked key is refused")
    await admin.aclose()
