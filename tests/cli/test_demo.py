"""What `gateway demo` prepares and prints, and that it runs without a Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import click
import pytest

from gateway.app import CannotStart, Settings
from gateway.cli import demo
from gateway.cli.main import run
from gateway.cli.shipped import find_policies
from gateway.domain import key_format
from gateway.domain.policy import Policy
from gateway.domain.upstreams import Server
from gateway.observe import logs
from gateway.policies.load import load
from gateway.stores.redis.address import StoreAddress
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S
from tests.kit.policies import copy_shipped, write_policies
from tests.kit.wire import fetch

UPSTREAM = Server("http", "127.0.0.1", 9)
KEYS = {"free": "KEY-FREE", "pro": "KEY-PRO", "enterprise": "KEY-ENTERPRISE"}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load(find_policies())


def test_each_plan_gets_a_key(policy: Policy) -> None:
    """The texts match their records; all keys but the free one have the scope."""
    keys = demo.mint_keys(policy, 7)
    assert list(keys) == ["free", "pro", "enterprise"]
    for plan, (text, record) in keys.items():
        assert key_format.parse(text) == (policy.environment, record.id)
        assert record.digest == key_format.digest(text.encode())
        assert (record.plan, record.account, record.created_us) == (plan, "demo", 7)
        assert record.scopes == (() if plan == "free" else ("connectors:read",))
        assert ("scm" in record.permissions) == (plan != "free")
        assert record.lineage == record.id


def test_every_upstream_is_the_demos(policy: Policy) -> None:
    """Requests go to the demo's upstream instead of the policies' servers; nothing else changes."""
    changed = demo.with_upstream(policy, UPSTREAM)
    servers = {name: upstream.servers for name, upstream in changed.upstreams.items()}
    assert servers == {"api": (UPSTREAM,), "mcp": (UPSTREAM,), "webhooks": ()}
    assert replace(changed, upstreams=policy.upstreams) == policy


def test_the_lines_to_try(policy: Policy) -> None:
    """One line each; 403 uses the key without the scope, 429 a separate key."""
    shown = {
        example.shows.split(" ")[0].rstrip(":,"): example.command
        for example in demo.examples("http://h:1", KEYS, policy)
    }
    assert list(shown) == ["200", "401", "403", "429", "what", "MCP"]
    assert "KEY" not in shown["401"]
    assert "KEY-FREE" in shown["403"]
    assert "KEY-ENTERPRISE" in shown["429"]
    commands = [example.command for example in demo.examples("http://h:1", KEYS, policy)]
    assert all("\n" not in command and "http://h:1/" in command for command in commands)


def test_other_policies_have_other_lines(policy: Policy) -> None:
    """For a missing route or plan, its lines are omitted."""
    bare = replace(policy, routes=MappingProxyType({}))
    shown = demo.examples("http://h:1", {"basic": "KEY"}, bare)
    assert [example.shows for example in shown] == ["401: without a key", "what a key may do"]
    shown = demo.examples("http://h:1", {"basic": "KEY"}, policy)
    assert not any("403" in example.shows for example in shown)


@pytest.mark.parametrize(
    ("store", "shown"),
    [(StoreAddress("unix", path="/x"), "a private Redis"), (StoreAddress("memory"), "in process")],
)
def test_what_is_printed(policy: Policy, store: StoreAddress, shown: str) -> None:
    """Addresses, keys, lines to try, and the kind of store."""
    settings = Settings(Path("policies"), ("::1", 80), ("127.0.0.1", 81), store)
    printed = demo.describe(policy, KEYS, settings, UPSTREAM, "/tmp/x/admin-token")
    assert f"Store     {shown}" in printed
    assert "http://[::1]:80/v1/connectors" in printed
    assert "http://127.0.0.1:81/metrics" in printed
    assert "http://127.0.0.1:81/console (sign in with the token in /tmp/x/admin-token)" in printed
    assert all(text in printed for text in KEYS.values())
    bare = demo.describe(policy, KEYS, replace(settings, admin=None), UPSTREAM, "")
    assert "/metrics" not in bare


def has_ipv6() -> bool:
    """Many containers have none."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"])
def test_a_taken_address_is_refused(host: str) -> None:
    """Even if it could be shared, as gateways do; the error names the option."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(click.ClickException, match=rf":{port} .*--listen"):
            demo.check_unused("--listen", (host, port))
    demo.check_unused("--listen", (host, port))


def test_a_foreign_address_is_refused() -> None:
    """If an address cannot be bound for another reason, the error has the reason."""
    with pytest.raises(click.ClickException, match="--admin"):
        demo.check_unused("--admin", ("192.0.2.1", 0))


@pytest.fixture
def _signals() -> Iterator[None]:
    """Restores the process's signal handlers, which the demo replaces."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("has_server", [True, False])
async def test_it_runs_with_a_redis_and_without(
    has_server: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If there is no server program, the demo uses a store in its process, and says so."""
    if not has_server:
        monkeypatch.setattr(demo, "find_server_binary", lambda: None)
    anywhere = ("127.0.0.1", 0)
    folder = copy_shipped(tmp_path / "policies")
    running = asyncio.create_task(demo.run_demo(folder, load(folder), anywhere, anywhere, 0))
    printed = ""

    def is_ready() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return running.done() or "Ctrl-C" in printed

    await eventually(is_ready, "the demo runs", READY_S)
    try:
        shown = dict(line.split(maxsplit=1) for line in printed.splitlines()[:10] if line[4:])
        assert shown["Store"].startswith("a private Redis" if has_server else "in process")
        port = int(shown["Gateway"].rpartition(":")[2])
        assert (await fetch(port, "/v1/connectors", key=shown["pro"])).status == 200
        assert (await fetch(port, "/v1/connectors", key=shown["free"])).status == 403
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await running
    assert "The demo ends." in capsys.readouterr().out


def test_faulty_policies_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each fault with its place on a separate line, as `serve` and `validate` print them."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9", plans="plans: {free: 3}\n")
    assert run(["demo", "--policies", str(folder), "--listen", "127.0.0.1:0"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any("plans.yaml:1" in line for line in lines[:-1])
    assert lines[-1] == f"gateway demo: {folder}: the policies have faults"


def test_a_failed_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a part fails to start, the demo prints its error and exits with 1."""

    def fail(_main: object) -> None:
        raise CannotStart("--listen: no")

    monkeypatch.setattr(demo, "run", fail)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    assert run(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]) == 1
    assert capsys.readouterr().err == "gateway demo: --listen: no\n"
