"""The targets of a run: the demo, or several gateways on one Redis. Real programs, free ports."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from redis.asyncio import Redis

from gateway.cli.demo import mint_keys
from gateway.cli.shipped import find_policies
from gateway.policies.load import load
from gateway.stores.keys.store import RedisKeyStore
from loadtests.compare import probe
from loadtests.compare.processes import Program
from loadtests.traffic.keychain import PLANS
from tests.kit.ports import free_port
from tests.kit.redis_server import DURABLE, RedisServer

#: The end of the demo's output.
_LAST: Final = "Ctrl-C ends the demo"


@dataclass(frozen=True, slots=True)
class Demo:
    """What `gateway demo` prints when it runs. keys: by plan"""

    base: str
    keys: dict[str, str]


@dataclass(slots=True)
class Site:
    """hosts: of the gateways; keys: by plan; pids: of the gateways, by a name for each.

    admins: the ports of their admin listeners; redis: if the run may kill it
    """

    hosts: list[str]
    keys: dict[str, list[str]]
    policies: Path
    pids: dict[str, int] = field(default_factory=dict)
    admins: list[int] = field(default_factory=list)
    redis: RedisServer | None = None


def parse_demo(text: str) -> Demo | None:
    """Read what the demo prints; None while it has not printed all."""
    if _LAST not in text:
        return None
    words = [line.split() for line in text.splitlines()]
    base = next(line[1] for line in words if line[:1] == ["Gateway"] and len(line) == 2)
    keys = {line[0]: line[1] for line in words if len(line) == 2 and line[1].startswith("gwk_")}
    return Demo(base, keys)


def open_demo(folder: Path, stack: ExitStack) -> Site:
    """Start the demo; the stack stops it. Raises NotStarted."""
    policies = copy_policies(folder / "policies", patient=True)
    listen, admin = free_port(), free_port()
    home = folder / "demo"
    home.mkdir()
    program = Program(
        home,
        *(sys.executable, "-m", "gateway", "demo", "--policies", str(policies)),
        *("--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"),
        environment=_environment(),
    )
    stack.callback(program.stop)
    program.until(lambda: parse_demo(program.log.read_text()) is not None)
    demo = parse_demo(program.log.read_text())
    assert demo is not None, "it has printed all"
    keys = {plan: [demo.keys[plan]] for plan in PLANS if plan in demo.keys}
    return Site([demo.base], keys, policies, {"demo": program.pid}, [admin])


def open_gateways(
    folder: Path, stack: ExitStack, *, gateways: int, workers: int, keys: int, patient: bool
) -> Site:
    """Start a Redis, an upstream and gateways; the stack stops them. Raises NotStarted.

    keys:    the number for the plan with the most; the others have a half and a quarter
    patient: wait for a slow Redis; otherwise only as long as the shipped policies say, and Redis
             may be killed
    """
    redis = RedisServer(*(() if patient else DURABLE))
    stack.callback(redis.stop)
    redis.start()
    upstream = _start_upstream(folder / "upstream", stack)
    policies = copy_policies(folder / "policies", patient=patient, upstream=upstream)
    site = Site([], {}, policies, redis=redis)
    site.keys = _make_keys(redis.url, policies, keys)
    for number in range(1, gateways + 1):
        _start_gateway(folder / f"gateway-{number}", site, workers, stack)
    return site


def _start_gateway(home: Path, site: Site, workers: int, stack: ExitStack) -> None:
    """One more gateway of the site."""
    assert site.redis is not None, "several gateways share a Redis"
    home.mkdir()
    listen, admin = free_port(), free_port()
    program = Program(
        home,
        *(sys.executable, "-m", "gateway", "serve", "--policies", str(site.policies)),
        *("--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"),
        *("--store", site.redis.url, "--data", str(home / "data"), "--workers", str(workers)),
        *("--access-log", "off", "--couriers", "0"),
        environment=_environment(),
    )
    stack.callback(program.stop)
    program.until(lambda: probe.is_up(admin, "/readyz"))
    site.hosts.append(f"http://127.0.0.1:{listen}")
    site.pids[home.name] = program.pid
    site.admins.append(admin)


def copy_policies(folder: Path, *, patient: bool, upstream: int | None = None) -> Path:
    """The shipped policies, changed as a run needs; the values of limits stay.

    Answers say when they were decided without Redis. Raises ValueError if the shipped files no
    longer have the text that is changed.
    """
    shutil.copytree(find_policies(), folder)
    changes = [
        ("gateway.yaml", "fallback: false", "fallback: true"),
        # What is measured is the limiter: couriers would refuse these requests.
        ("routes.yaml", "upstream: webhooks", "upstream: api"),
    ]
    if patient:
        changes.append(("gateway.yaml", "timeout: 50ms", "timeout: 5s"))
    if upstream is not None:
        # One server is the API and the MCP server.
        for shipped in ("127.0.0.1:9000", "127.0.0.1:9100"):
            changes.append(("upstreams.yaml", shipped, f"127.0.0.1:{upstream}"))
    for name, old, new in changes:
        text = (folder / name).read_text(encoding="utf-8")
        if old not in text:
            raise ValueError(f"{name}: nothing reads {old!r}")
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    return folder


def _start_upstream(home: Path, stack: ExitStack) -> int:
    home.mkdir()
    port = free_port()
    command = (sys.executable, "-m", "loadtests.traffic.upstream", str(port))
    path = os.pathsep.join((os.getcwd(), os.environ.get("PYTHONPATH", "")))
    program = Program(home, *command, environment={**_environment(), "PYTHONPATH": path})
    stack.callback(program.stop)
    program.until(lambda: _listens(port))
    return port


def _listens(port: int) -> bool:
    with socket.socket() as probing:
        return probing.connect_ex(("127.0.0.1", port)) == 0


def _make_keys(store: str, policies: Path, count: int) -> dict[str, list[str]]:
    """Keys of each plan, each with its own account."""
    policy = load(policies)
    made: dict[str, list[str]] = {}

    async def make() -> None:
        async with Redis.from_url(store) as client:
            kept = RedisKeyStore(client)
            for number in range(count):
                for place, plan in enumerate(PLANS):
                    if number >= max(1, count >> place):
                        continue
                    text, record = mint_keys(policy, time.time_ns() // 1000)[plan]
                    await kept.add(replace(record, account=record.id))
                    made.setdefault(plan, []).append(text)

    asyncio.run(make())
    return made


def _environment() -> dict[str, str]:
    """The own environment, without the variables of gateways."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
