"""`gateway demo`: runs a gateway with all that it needs, and removes everything at the end.

It starts a small upstream, a private Redis and the shipped policies, creates a key for each plan,
and prints curl commands to try. Everything is in this process, its Redis and one temporary folder;
however the demo ends, the exit stack closes them in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click

from gateway.app import CannotStart, Gateway, Settings
from gateway.cli import demo_mcp, demo_webhooks
from gateway.cli.demo_upstream import serve_demo_upstream
from gateway.cli.options import Folder, read_address
from gateway.cli.shipped import find_policies
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.policy import Policy
from gateway.domain.upstreams import WEBHOOKS, Server
from gateway.manage.forms import NewKey
from gateway.manage.keys import mint_key
from gateway.observe import logs
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from gateway.runtime.process import run
from gateway.runtime.settings import authority
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.embedded import EmbeddedFailed, EmbeddedRedis, find_server_binary
from gateway.tasks import keep_running

HOST: Final = "127.0.0.1"
ACCOUNT: Final = "demo"
#: The plan whose key lacks the scope and the permissions, so that commands show refusals.
UNSCOPED: Final = "free"
SCOPE: Final = "connectors:read"
PERMISSIONS: Final = MappingProxyType({"scm": ("read",), "ticketing": ("read", "write")})
#: How often it is checked whether the terminal is still open.
_POLL_S: Final = 0.5

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Example:
    """A command to try, and what it shows."""

    shows: str
    command: str


@click.command()
@click.option("--policies", type=Folder(path_type=Path), help="Default: the shipped ones.")
@click.option("--listen", metavar="HOST:PORT", default=f"{HOST}:8080", callback=read_address)
@click.option("--admin", metavar="HOST:PORT", default=f"{HOST}:9901", callback=read_address)
@click.option("--upstream-port", type=click.IntRange(0, 65535), default=0, help="0: a free one.")
def demo(policies: Path | None, listen: Address, admin: Address, upstream_port: int) -> None:
    """Start an upstream, a store and a gateway, and print keys with curl commands to try.

    Ctrl-C, or closing the terminal, stops everything and removes its data.

    Example: gateway demo --listen 127.0.0.1:8088
    """
    folder = policies or find_policies()
    try:
        policy = load(folder)
    except PolicyFaults as faults:
        for fault in faults.faults:
            click.echo(str(fault), err=True)
        raise click.ClickException(f"{folder}: the policies have faults") from faults
    check_unused("--listen", listen)
    check_unused("--admin", admin)
    check_unused("--upstream-port", (HOST, upstream_port))
    logs.configure("warning", sys.stderr)
    try:
        run(lambda: run_demo(folder, policy, listen, admin, upstream_port))
    except (CannotStart, EmbeddedFailed) as error:
        raise click.ClickException(str(error)) from error


def check_unused(option: str, address: Address) -> None:
    """Raise ClickException if the address is in use.

    Checked before anything starts, and without SO_REUSEPORT, with which a running gateway would
    share its port and get half of the demo's requests.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise click.ClickException(
                f"cannot listen on {authority(*address)} ({reason}); "
                f"choose another with {option} or {_variable(option)}"
            ) from error


def _variable(option: str) -> str:
    """The variable for an option, for use where options cannot be given: `make demo`."""
    return f"GATEWAY_{option.removeprefix('--').replace('-', '_').upper()}"


async def run_demo(
    folder: Path, policy: Policy, listen: Address, admin: Address, upstream_port: int
) -> None:
    """Start everything, print it, and wait for Ctrl-C, SIGTERM or the end of the terminal."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(signal.SIGHUP, ended.set)
            keep_running(stack, _watch_terminal(ended.set), "terminal of the demo")
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-demo-")))
        server = await _start_upstream(stack, upstream_port)
        store = await _start_store(stack, data)
        settings = Settings(policies=folder, listen=listen, admin=admin, store=store, data=data)
        served = demo_webhooks.with_loopback(with_upstream(policy, server))
        accepting = None
        if store.kind != "memory" and WEBHOOKS in policy.upstreams:
            settings, accepting = await stack.enter_async_context(
                demo_webhooks.reserve_couriers(settings)
            )
        running = Gateway(settings, policy=served)
        await running.start()
        stack.push_async_callback(_stop, running)
        keys = await _create_keys(running, policy)
        webhooks = None
        if accepting is not None:
            webhooks = await stack.enter_async_context(
                demo_webhooks.serve_webhooks(settings, served, accepting, ACCOUNT)
            )
        taken = replace(
            settings, listen=(listen[0], running.port), admin=(admin[0], running.admin_port)
        )
        click.echo(describe(policy, keys, taken, server, running.admin.token_source, webhooks))
        await ended.wait()
        with contextlib.suppress(OSError):  # the terminal may be closed
            click.echo("\nThe demo ends.")


async def _watch_terminal(on_end: Callable[[], None]) -> None:
    """Call `on_end` when the terminal is closed, for which SIGHUP is not sufficient.

    The kernel sends SIGHUP only to the session's leader. A shell passes it on; `make`, when it runs
    without a shell, waits for the demo instead.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # there is none
        return
    try:
        hang_up = select.poll()
        hang_up.register(terminal, 0)  # with no events requested, only a hang-up is reported
        while not hang_up.poll(0):  # noqa: ASYNC110 - only poll() reports it
            await asyncio.sleep(_POLL_S)
        on_end()
    finally:
        os.close(terminal)


async def _stop(running: Gateway) -> None:
    """Stop without a drain, so that the demo ends immediately."""
    running.stop_now()
    await running.stop()


async def _start_upstream(stack: AsyncExitStack, port: int) -> Server:
    port = await stack.enter_async_context(serve_demo_upstream(HOST, port))
    return Server("http", HOST, port)


async def _start_store(stack: AsyncExitStack, data: Path) -> StoreAddress:
    """A private Redis; if no server binary is found, the in-process store."""
    if find_server_binary() is None:
        return StoreAddress("memory")
    embedded = EmbeddedRedis(data, ephemeral=True)
    stack.callback(embedded.stop)
    await asyncio.to_thread(embedded.start)
    return embedded.address


def with_upstream(policy: Policy, server: Server) -> Policy:
    """The policy with this server in place of every upstream's own."""
    upstreams = {
        name: replace(upstream, servers=() if name == WEBHOOKS else (server,))
        for name, upstream in policy.upstreams.items()
    }
    return replace(policy, upstreams=upstreams)


def mint_keys(policy: Policy, now_us: int) -> dict[str, tuple[str, KeyRecord]]:
    """A key for each plan: plan -> its text and its record."""
    keys = {}
    for plan in policy.plans:
        new = NewKey(f"{ACCOUNT}-{plan}", policy.environment, plan, ACCOUNT)
        if plan != UNSCOPED:
            new = replace(new, scopes=(SCOPE,), permissions=PERMISSIONS)
        record, text = mint_key(new, now_us)
        keys[plan] = text, record
    return keys


async def _create_keys(running: Gateway, policy: Policy) -> dict[str, str]:
    """Put the demo's account and keys into the store; plan -> key text."""
    services = {route.service for route in policy.routes.values() if route.service is not None}
    await running.keys.put_account(Account(ACCOUNT, tuple(sorted(services))))
    keys = mint_keys(policy, time.time_ns() // 1000)
    for _, record in keys.values():
        await running.keys.add(record)
    return {plan: text for plan, (text, _) in keys.items()}


def describe(
    policy: Policy,
    keys: Mapping[str, str],
    settings: Settings,
    upstream: Server,
    token_source: str,
    webhooks: demo_webhooks.WebhookDemo | None = None,
) -> str:
    """The text that is printed once the demo runs.

    settings:     with the actual ports
    token_source: where the admin token is; not the token itself
    """
    base = _url(settings.listen)
    store = "a private Redis"
    if settings.store is not None and settings.store.kind == "memory":
        store = "in process; no valkey-server or redis-server was found"
    lines = [
        f"Gateway   {base}",
        *(_describe_admin(settings.admin, token_source) if settings.admin else []),
        f"Upstream  http://{upstream.authority}",
        f"Store     {store}",
        f"Policies  {settings.policies}",
        "",
        "A key for each plan, valid until the demo ends:",
        *(f"  {plan:<12}{text}" for plan, text in keys.items()),
    ]
    shown = examples(base, keys, policy)
    if webhooks is not None:
        key = next(text for plan, text in keys.items() if plan != UNSCOPED or len(keys) == 1)
        shown.append(
            Example(
                "webhooks: register a receiver, send an issue as GitLab does, and see what arrived",
                webhooks.command(base, key),
            )
        )
    for example in shown:
        lines += ["", f"# {example.shows}", example.command]
    return "\n".join([*lines, "", "Ctrl-C ends the demo and removes its data."])


def _describe_admin(address: Address, token_source: str) -> list[str]:
    return [
        f"Console   {_url(address)}/console (sign in with the token in {token_source})",
        f"Metrics   {_url(address)}/metrics",
    ]


def _url(address: Address) -> str:
    return f"http://{authority(*address)}"


def examples(base: str, keys: Mapping[str, str], policy: Policy) -> list[Example]:
    """The commands to try, as far as these policies have the routes for them."""
    unscoped = keys.get(UNSCOPED)
    texts = [text for plan, text in keys.items() if plan != UNSCOPED] or list(keys.values())
    # The calls that reach a limit have their own key, if there are enough keys.
    first, last = (f"-H 'Authorization: Bearer {text}'" for text in (texts[0], texts[-1]))
    shown = [Example("401: without a key", f"curl -i {base}/v1/connectors")]
    if "connectors" in policy.routes:
        url = f"{base}/v1/connectors"
        shown.insert(0, Example("200, and how much remains", f"curl -i {first} {url}"))
        if unscoped:
            header = f"-H 'apiKey: {unscoped}'"
            shown.append(Example(f"403: no scope {SCOPE}", f"curl -i {header} {url}"))
    if "search" in policy.routes:
        url = f"{base}/api/search/anything"
        send = f"curl -s -o /dev/null -w '%{{http_code}} ' {last} {url}"
        wait = (
            f"curl -s -o /dev/null -D - {last} {url}"
            " | awk 'tolower($1) == \"retry-after:\" {print $2 + 0}'"
        )
        shown += [
            Example(
                "200 as often as search allows, then 429",
                f"for i in $(seq 32); do {send}; done; echo",
            ),
            Example("429, with Retry-After", f"curl -i {last} {url}"),
            Example(
                "200 again, once Retry-After is over", f"sleep $({wait}); curl -i {last} {url}"
            ),
        ]
    shown.append(Example("what a key may do", f"curl -s {first} {base}/v1/auth/verify"))
    if "mcp" in policy.routes:
        shown += _mcp_examples(f"{base}{demo_mcp.PATH}", texts[0], unscoped)
    return shown


def _mcp_examples(url: str, text: str, unscoped: str | None) -> list[Example]:
    """The commands for the MCP server, and how MCP clients are connected to it."""
    sent = f"-H 'Content-Type: application/json' {url} -d"
    call = {"name": "search_code", "arguments": {"query": "invoice"}}
    calling = _message("tools/call", call)
    header = f"Authorization: Bearer {text}"
    shown = [
        Example(
            "MCP: the tools of a server", f"curl -s -H '{header}' {sent} '{_message('tools/list')}'"
        ),
        Example(
            "MCP: call a tool, with a rate of its own",
            f"curl -i -H '{header}' {sent} '{calling}'",
        ),
    ]
    if unscoped:
        key = f"-H 'Authorization: Bearer {unscoped}'"
        shown.append(
            Example("MCP: a tool that this key may not call", f"curl -s {key} {sent} '{calling}'")
        )
    return [
        *shown,
        Example(
            "MCP: the same with the MCP inspector, which needs Node.js",
            f"npx -y @modelcontextprotocol/inspector --cli {url} --transport http"
            f" --header '{header}' --method tools/list",
        ),
        Example(
            "MCP: add the server to Claude Code",
            f"claude mcp add --transport http demo {url} --header '{header}'",
        ),
    ]


def _message(method: str, params: Mapping[str, object] | None = None) -> str:
    """A request of MCP."""
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})}
    )
