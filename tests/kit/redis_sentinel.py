"""A real master with a replica, and three Sentinels that monitor them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from gateway.stores.redis.address import StoreAddress
from tests.kit.ports import free_port
from tests.kit.redis_cluster import wait_for
from tests.kit.redis_server import RedisServer, server_binary

SERVICE = "counts"
SENTINELS = 3
DOWN_AFTER_MS = 500


class RedisSentinel:
    """Five processes. Every method blocks: within a loop, call it in a thread."""

    def __init__(self, *arguments: str, sentinel_password: str = "") -> None:
        self.servers = [RedisServer(*arguments, "--repl-diskless-sync-delay", "0") for _ in "12"]
        self.sentinel_password = sentinel_password
        self.ports = [free_port() for _ in range(SENTINELS)]
        self._folder = Path(tempfile.mkdtemp(prefix="gateway-sentinel-"))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        return tuple(("127.0.0.1", port) for port in self.ports)

    @property
    def url(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def address(self) -> StoreAddress:
        return StoreAddress(
            "sentinel",
            hosts=self.hosts,
            service=SERVICE,
            sentinel_password=self.sentinel_password or None,
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> RedisSentinel:
        """Start all, and wait until they know each other."""
        first, second = (server.start() for server in self.servers)
        with second.client() as client:
            client.replicaof("127.0.0.1", first.port)
        for port in self.ports:
            self._start_sentinel(port, first.port)
        for port in self.ports:
            wait_for(lambda port=port: self.ask(port, "PING") == b"PONG", "a Sentinel answers")
            self._look_often(port)
        self.heal()
        return self

    def stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for server in self.servers:
            server.stop()
        shutil.rmtree(self._folder)

    def heal(self) -> None:
        """Start killed servers, and wait until all are healthy."""
        for server in self.servers:
            server.revive()
        wait_for(self._follow, "the master has a replica")
        wait_for(self.is_healthy, "the Sentinels see a master and its replica")

    def _follow(self) -> bool:
        """Have the other server follow the master now: the Sentinels would take ten seconds."""
        master = self.master
        (other,) = (server for server in self.servers if server is not master)
        with other.client() as client:
            if client.info("replication")["role"] == "master":
                client.replicaof("127.0.0.1", master.port)
        with master.client() as client:
            return client.info("replication")["connected_slaves"] == 1

    def is_healthy(self) -> bool:
        """Do all Sentinels agree, and is the other server the master's replica, and up to date?"""
        states = [self.ask(port, "SENTINEL", "MASTER", SERVICE) for port in self.ports]
        found = [dict(zip(state[::2], state[1::2], strict=True)) for state in states]
        if len({state[b"port"] for state in found}) != 1:
            return False
        others = [server for server in self.servers if server.port != self.master.port]
        with others[0].client() as client:
            replication = client.info("replication")
        return replication.get("master_link_status") == "up" and all(
            state[b"flags"] == b"master"
            and state[b"num-slaves"] == b"1"
            and state[b"num-other-sentinels"] == b"%d" % (SENTINELS - 1)
            and self._replica_is_seen(port)
            for state, port in zip(found, self.ports, strict=True)
        )

    def flush(self) -> None:
        with self.master.client() as client:
            client.flushall()

    # -- queries and changes -----------------------------------------------------------------------

    @property
    def master(self) -> RedisServer:
        """The master, as most Sentinels see it."""
        ports = [
            int(self.ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
            for port in self.ports
        ]
        named = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == named)

    def ask(self, port: int, *words: Any) -> Any:
        """Send one command to one Sentinel; return its raw answer."""
        password = self.sentinel_password or None
        with redis.Redis(port=port, password=password, protocol=2, driver_info=None) as client:
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def fail_over(self) -> RedisServer:
        """Do a planned failover; return the new master, once most Sentinels name it."""
        old = self.master
        self.ask(self.ports[0], "SENTINEL", "FAILOVER", SERVICE)
        wait_for(lambda: self.master is not old, "another master is named")
        return self.master

    def _start_sentinel(self, port: int, master: int) -> None:
        folder = self._folder / str(port)
        folder.mkdir()
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"sentinel monitor {SERVICE} 127.0.0.1 {master} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 2000",
        ]
        if self.sentinel_password:
            lines.append(f"requirepass {self.sentinel_password}")
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        self._processes.append(
            subprocess.Popen(
                [str(server_binary()), "sentinel.conf", "--sentinel"],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
        )

    def _look_often(self, port: int) -> None:
        """Have a Sentinel check the servers' roles more often than every ten seconds."""
        with suppress(redis.ResponseError):  # only Redis 7 has it
            self.ask(port, "SENTINEL", "DEBUG", "info-period", 250)

    def _replica_is_seen(self, port: int) -> bool:
        (state,) = self.ask(port, "SENTINEL", "REPLICAS", SERVICE)
        seen = dict(zip(state[::2], state[1::2], strict=True))
        return seen[b"flags"] == b"slave" and seen[b"master-link-status"] == b"ok"
