"""`gateway warnings`."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url
from tests.kit.redis_server import RedisServer
from tests.suites.warnings import warning

A, B = "7h3k9m2p4q6r", "8h3k9m2p4q6r"


@pytest.fixture
def warned(redis_server: RedisServer) -> RedisServer:
    """A store with warnings of two keys, one of them with a name that would clear a terminal."""

    async def fill() -> None:
        async with open_managed(parse_url(redis_server.url)) as stores:
            await stores.warnings.warn(warning("a", 80, key_id=A))
            await stores.warnings.warn(warning("a", 100, key_id=A))
            await stores.warnings.warn(warning("b", 80, key_id=B))
            await stores.warnings.warn(warning("c", 80, key_id="\x1b[2J"))

    asyncio.run(fill())
    return redis_server


def run(server: RedisServer, *words: str) -> Result:
    return CliRunner().invoke(cli, ["warnings", "--store", server.url, "--text", *words])


def test_on_a_terminal(warned: RedisServer) -> None:
    """One line per warning, the newest last; no control character is printed."""
    head, *lines = run(warned).output.splitlines()
    assert head.split() == ["TIME", "KEY", "ID", "PLAN", "LIMIT", "LEVEL"]
    assert [line.split()[1] for line in lines] == [A, A, B, "?[2J"]
    assert lines[1].split() == ["2027-01-15T08:00:00.123456Z", A, "free", "search", "100", "%"]


def test_for_scripts(warned: RedisServer) -> None:
    """A JSON list of whole warnings, the newest last; filtered by key and number."""
    found = json.loads(run(warned, "--json", "--key", A).output)
    assert [(one["key_id"], one["level"]) for one in found] == [(A, 80), (A, 100)]
    found = json.loads(run(warned, "--json", "--count", "2").output)
    assert [one["key_id"] for one in found] == [B, "\x1b[2J"]


def test_a_key_is_named_by_its_id(warned: RedisServer) -> None:
    """An invalid id is bad usage."""
    result = run(warned, "--key", "nobody")
    assert result.exit_code == 2
    assert "an ID is 12 letters and digits" in result.output


def test_an_outage() -> None:
    """One line and exit status 1."""
    result = run(RedisServer())
    assert result.exit_code == 1
    assert "the store is unavailable" in result.output
