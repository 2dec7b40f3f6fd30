"""What these tests start: servers, a gateway in front of them, programs that end by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from redis.asyncio import Redis

from gateway.domain.keys import Account
from gateway.stores.keys.store import RedisKeyStore
from tests.judges.environments import NPM, PROGRAMS, node, python
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, ServedGateway
from tests.kit.keys import make_key
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

PLANS = "plans:\n  free: {rate: 6000/minute, burst: 10000}\n"
#: No limit of these is ever reached.
LIMITS = """
    limits:
      - {name: NAME, rate: 100000/minute}
      - {name: NAME-connections, concurrency: 100, of: connections}
"""
ROUTES = """
routes:
  all:
    match: "* /mcp/**"
    upstream: api
    plan_limits: false
    mcp: {tools: {"*": allow}}
""" + LIMITS.replace("NAME", "all")


def environment(folder: Path) -> dict[str, str]:
    """For programs of others: this folder as their home, and no browser to open."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    return {
        **kept,
        "HOME": str(folder),
        "MCP_REMOTE_CONFIG_DIR": str(folder),
        "BROWSER": "false",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@dataclass
class Site:
    """A gateway, and its store."""

    gateway: ServedGateway
    keys: RedisKeyStore

    @property
    def port(self) -> int:
        return self.gateway.port

    async def key(self, *services: str, **fields: Any) -> str:
        """The text of a new key, whose account has these services."""
        text, record = make_key(secrets.randbelow, **fields)
        await self.keys.add(record)
        await self.keys.put_account(Account(record.account, services))
        return text


@asynccontextmanager
async def started_site(folder: Path, upstream: str, **files: str) -> AsyncIterator[Site]:
    """A gateway in front of this upstream. files: as for `write_policies`"""
    store = RedisServer().start()
    try:
        async with Redis(port=store.port) as client:
            texts = {"plans": PLANS, "routes": ROUTES, **files}
            policies = write_policies(folder / "policies", upstream, **texts)
            async with ServedGateway(folder / "gateway", policies, store.url) as gateway:
                yield Site(gateway, RedisKeyStore(client))
    finally:
        store.stop()


@asynccontextmanager
async def started(folder: Path, port: int, *command: str | Path) -> AsyncIterator[int]:
    """A program that listens on this port of localhost; yields the port once it does."""
    with _output(folder) as output:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=NPM,
            env=environment(folder) | {"PORT": str(port)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    try:
        await eventually(
            lambda: process.returncode is not None or _listens(port),
            f"{command[1]} listens",
            READY_S,
        )
        assert process.returncode is None, (folder / "output").read_text(errors="replace")
        yield port
    finally:
        await _end(process)


def _output(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "output").open("wb")


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
        return True
    return False


def everything(folder: Path) -> contextlib.AbstractAsyncContextManager[int]:
    """The server with everything that the conformance suite and the clients call."""
    port = free_port()
    return started(folder, port, python("sdk-2"), PROGRAMS / "everything.py", str(port))


async def run(
    folder: Path, command: Sequence[str | Path], words: str = "", within_s: float = 100
) -> tuple[int, str, str]:
    """Run a program to its end; its exit status, output and errors. words: its input"""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=NPM,
        env=environment(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        async with asyncio.timeout(within_s):
            out, errors = await process.communicate(words.encode())
    finally:
        await _end(process)
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace"), errors.decode(errors="replace")


def script(name: str) -> list[str | Path]:
    """The command of a program of ours for Node.js."""
    return [node(), PROGRAMS / name]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program, and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(5):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
