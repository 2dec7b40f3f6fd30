"""`gateway store`, as a user calls it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from gateway.cli.main import cli
from gateway.stores import checking
from tests.kit.acl import RULES
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["store", *words])


@pytest.fixture
def client(redis_server: RedisServer) -> Redis:
    with redis_server.client() as client:
        yield client
        client.acl_deluser("checked")


def test_a_store_that_works(redis_server: RedisServer) -> None:
    """Every connection is ok; the check leaves nothing behind but what any gateway writes."""
    found = run("--store", redis_server.url, "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == {
        "store": redis_server.url,
        **dict.fromkeys(("limits", "keys", "data", "commands"), "ok"),
    }
    with redis_server.client() as client:
        assert not client.exists("gw:{keys}:workers")


def test_a_right_that_is_missing(
    redis_server: RedisServer, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection has its own reason, with the command that is refused and the cure."""
    monkeypatch.setattr(checking, "_WAIT_S", 0.5)
    rules = ("reset", "on", ">secret", *RULES, "-evalsha", "-info")
    client.execute_command("ACL", "SETUSER", "checked", *rules)
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", "secret")
    words = redis_server.url.replace("redis://", "redis://checked@")
    found = run("--store", words, "--text")
    assert found.exit_code == 1
    head, limits, keys, data, commands = found.stdout.splitlines()
    assert head.split() == ["FOR", "FOUND"]
    assert limits.startswith("limits")
    assert "refuses the connection at EVALSHA: NOPERM" in limits
    assert "docs/store.md" in limits
    for line in (keys, data, commands):
        assert line.split()[1:] == ["ok"]
    assert "secret" not in found.output


def test_a_password_that_is_wrong(
    redis_server: RedisServer, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection is refused; the commands' as well."""
    monkeypatch.setattr(checking, "_WAIT_S", 0.5)
    client.execute_command("ACL", "SETUSER", "checked", "reset", "on", ">secret", *RULES)
    monkeypatch.setenv("GATEWAY_STORE_PASSWORD", "hunter2")
    url = redis_server.url.replace("redis://", "redis://checked@")
    found = run("--store", url, "--json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    for name in ("limits", "keys", "commands"):
        assert "GATEWAY_STORE_PASSWORD_FILE" in told[name]
    assert "hunter2" not in found.output


def test_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not there is said of each connection, in time."""
    monkeypatch.setattr(checking, "_WAIT_S", 0.2)
    found = run("--store", f"redis://127.0.0.1:{free_port()}", "--json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert all("onnect" in told[name] for name in ("limits", "keys", "commands"))


def test_memory_has_no_connections() -> None:
    """memory:// is refused, as by all commands that need a store."""
    found = run("--store", "memory://")
    assert found.exit_code == 2
    assert "memory://" in found.output
