"""`gateway mcp`, as a user calls it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.limits import Check
from gateway.domain.ports import UsageBatch
from gateway.manage.limits import Limits
from gateway.policies.load import load
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.managed import open_managed
from gateway.stores.names import WORKERS
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.suites.keys import plain_key

A, B = "7h3k9m2p4q6r", "8h3k9m2p4q6r"
HOSTILE = "\x1b[2Jtool"
ROUTES = """
routes:
  mcp:
    match: "* /mcp/**"
    upstream: api
    mcp: {tools: {search: {rate: 3/minute}, "*": allow}}
    limits: [{name: sessions, concurrency: 5, of: connections}]
"""


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Policies in a folder that is not the current one's."""
    monkeypatch.chdir(tmp_path)
    return write_policies(tmp_path / "rules", "http://127.0.0.1:9", routes=ROUTES)


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    """A store with two keys."""

    async def fill() -> None:
        client = redis_client(parse_url(redis_server.url))
        for key_id in (A, B):
            await RedisKeyStore(client).add(plain_key(key_id, name=f"key {key_id[0]}"))
        await client.aclose()

    asyncio.run(fill())
    return redis_server.url


def use(url: str, folder: Path) -> None:
    """Two sessions of one key and one of the other are open, and tools were called."""
    policy = load(folder)

    async def fill() -> None:
        client = redis_client(parse_url(url))
        await client.zadd(WORKERS, {"one": 1})
        await client.aclose()
        async with open_managed(parse_url(url)) as stores:
            limits = Limits(
                stores.keys, stores.counters, stores.audit, lambda: policy, stores.clock_us
            )
            for lease, key_id in enumerate((A, A, B), 1):
                (held,) = [one for one in await limits._met(key_id) if one.limit.name == "sessions"]
                check = Check((held.limit,), (held.counter,)).leased(lease)
                assert (await stores.counters.decide(check)).allowed
            await stores.connections.report("one", {A: 2, B: 1})
            counts = {
                ("mcp:mcp", "search", "admitted:2xx"): 1_200,
                ("mcp:mcp", "search", "limited:mcp/search"): 30,
                ("mcp:mcp", "search", "refused:tool_not_permitted"): 2,
                ("mcp:mcp", HOSTILE, "admitted:2xx"): 5,
                ("mcp:code", "other", "admitted:2xx"): 7,
            }
            minute_s = int(time.time()) // 60 * 60
            await stores.usage.add(UsageBatch("worker", 1, minute_s, counts))

    asyncio.run(fill())


def run(url: str, *words: str) -> Result:
    return CliRunner().invoke(cli, ["mcp", "--store", url, *words])


def test_on_a_terminal(url: str, policies: Path) -> None:
    """Keys with open connections of how many, then calls by tool; no control character."""
    use(url, policies)
    shown = run(url, "--text", "--policies", str(policies))
    assert shown.exit_code == 0, shown.output
    connected, tools = shown.output.split("\n\n")
    head, *lines = connected.splitlines()
    assert head.split() == ["KEY", "NAME", "ACCOUNT", "PLAN", "OPEN"]
    assert [line.split()[0] for line in lines] == [A, B]
    assert [line.split("  ")[-1] for line in lines] == ["2 of 5 (sessions)", "1 of 5 (sessions)"]
    head, *lines = tools.splitlines()
    assert head.split()[:4] == ["ROUTE", "TOOL", "CALLS", "ADMITTED"]
    assert [line.split()[:7] for line in lines] == [
        ["code", "other", "7", "7", "0", "0", "0"],
        ["mcp", "search", "1,232", "1,200", "30", "2", "0"],
        ["mcp", "?[2Jtool", "5", "5", "0", "0", "0"],
    ]
    assert lines[1].endswith("limited:mcp/search 30, refused:tool_not_permitted 2")


def test_for_scripts(url: str, policies: Path) -> None:
    """JSON when piped; without policies the limits are null."""
    use(url, policies)
    found = json.loads(run(url).output)
    assert [(one["id"], one["reported"], one["limits"]) for one in found["connections"]] == [
        *((A, 2, None), (B, 1, None)),
    ]
    assert [(one["route"], one["tool"]) for one in found["tools"]] == [
        *(("code", "other"), ("mcp", "search"), ("mcp", HOSTILE)),
    ]
    words = "--policies", str(policies), "--count", "1", "--route", "code", "--window", "1h"
    found = json.loads(run(url, *words).output)
    assert [one["limits"][0]["open"] for one in found["connections"]] == [2]
    assert [one["calls"] for one in found["tools"]] == [7]


def test_more_keys_than_shown(url: str, policies: Path) -> None:
    """The number of all is printed."""
    use(url, policies)
    assert "1 of 2 keys" in run(url, "--text", "--count", "1").output


def test_one_key(url: str, policies: Path) -> None:
    """Its connections alone, also if it has none."""
    words = "--key", A, "--policies", str(policies)
    (one,) = json.loads(run(url, *words).output)["connections"]
    assert (one["id"], one["reported"]) == (A, 0)
    assert (one["limits"][0]["open"], one["limits"][0]["limit"]) == (0, 5)
    shown = run(url, *words, "--text").output
    assert "0 of 5 (sessions)" in shown
    assert "tool" not in shown


def test_nothing_yet(url: str) -> None:
    """Said in words, and as empty lists."""
    shown = run(url, "--text").output
    assert shown == "no key has a connection open\n\nno tool was called\n"
    assert json.loads(run(url).output) == {"connections": [], "tools": []}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--key", "nobody"), "an ID is 12 letters and digits"),
        (("--key", A, "--route", "mcp"), "--key and --route: give one of them"),
        (("--to", "2026-07-01"), "from: found nothing, with to"),
        (("--window", "1h", "--from", "2026-07-01"), "found from or to as well"),
        (("--count", "0"), "--count"),
    ],
)
def test_bad_usage(url: str, words: tuple[str, ...], expected: str) -> None:
    """One line, and exit status 2."""
    result = run(url, *words)
    assert result.exit_code == 2
    assert expected in result.output


def test_an_unknown_key_and_an_outage(url: str) -> None:
    """One line and exit status 1."""
    result = run(url, "--key", "9h3k9m2p4q6r")
    assert (result.exit_code, "no key 9h3k9m2p4q6r" in result.output) == (1, True)
    result = run(RedisServer().url)
    assert (result.exit_code, "the store is unavailable" in result.output) == (1, True)
