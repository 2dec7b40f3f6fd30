"""A real Redis Cluster: by default of six processes, three masters and a replica of each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import redis
from redis.crc import key_slot

from gateway.stores.redis.address import StoreAddress
from tests.kit.ports import Ports, is_free
from tests.kit.redis_server import RedisServer

SLOTS = 16_384
MASTERS = 3
TIMEOUT_S = 60.0
#: The distance from a node's port to that of its cluster bus.
_TO_BUS = 10_000
_PORTS = Ports(20_000, 32_768 - _TO_BUS)


class Member(NamedTuple):
    """A node as another one sees it."""

    id: str
    port: int
    flags: str

    @classmethod
    def read(cls, line: str) -> Member:
        node_id, address, flags, *_ = line.split()
        return cls(node_id, int(address.partition("@")[0].rpartition(":")[2]), flags)


class RedisCluster:
    """Its servers, masters first. Every method blocks: within a loop, call it in a thread."""

    def __init__(
        self,
        *arguments: str,
        node_timeout_ms: int = 1_000,
        masters: int = MASTERS,
        has_replicas: bool = True,
    ) -> None:
        self._masters = masters
        self.nodes = [
            RedisServer(
                *("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms)),
                *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
                *arguments,
                port=_free_port_and_bus(),
            )
            for _ in range(2 * masters if has_replicas else masters)
        ]

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        return tuple(("127.0.0.1", node.port) for node in self.nodes)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def address(self) -> StoreAddress:
        return StoreAddress("cluster", hosts=self.hosts)

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> RedisCluster:
        """Start all, make them a cluster and wait until it is ready."""
        for node in self.nodes:
            node.start()
        count = self._masters
        masters, replicas = self.nodes[:count], self.nodes[count:]
        for index, node in enumerate(masters):
            first, last = index * SLOTS // count, (index + 1) * SLOTS // count
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            self.ask(node, "CLUSTER", "ADDSLOTS", *range(first, last))
        for node in self.nodes[1:]:
            self.ask(node, "CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        wait_for(
            lambda: all(len(self.view(n)) == len(self.nodes) for n in self.nodes),
            "all nodes know each other",
        )
        for replica, master in zip(replicas, masters, strict=False):
            self.ask(replica, "CLUSTER", "REPLICATE", self.id_of(master))
        self.heal()
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def heal(self) -> None:
        """Start killed nodes, resume paused ones, and wait until the cluster is healthy."""
        for node in self.nodes:
            node.revive()
        wait_for(self._close_slots, "no slot is in migration")
        wait_for(self.is_healthy, "the cluster is healthy")

    def is_healthy(self) -> bool:
        """Does every node know an owner of every slot, and every replica follow its master?"""
        roles, owners = [], set[tuple[tuple[int, int], ...]]()
        for node in self.nodes:
            told, state, lines, slots = self.ask_all(
                node,
                *(("INFO", "replication"), ("CLUSTER", "INFO")),
                *(("CLUSTER", "NODES"), ("CLUSTER", "SLOTS")),
            )
            replication = _read_info(told)
            roles.append(replication["role"])
            members = map(Member.read, lines.decode().splitlines())
            if (
                _read_info(state)["cluster_state"] != "ok"
                or replication.get("master_link_status", "up") != "up"
                or any("fail" in m.flags or "handshake" in m.flags for m in members)
            ):
                return False
            owners.add(tuple(sorted((row[0], row[2][1]) for row in slots)))
        return roles.count("master") == self._masters and len(owners) == 1

    def flush(self) -> None:
        for node in self.nodes:
            # A replica refuses, and gets it from its master.
            with suppress(redis.exceptions.ReadOnlyError):
                self.ask(node, "FLUSHALL")

    # -- looking at it -----------------------------------------------------------------------------

    def ask(self, node: RedisServer, *words: Any) -> Any:
        """Send one command to one node; return its raw answer."""
        (answer,) = self.ask_all(node, words)
        return answer

    def ask_all(self, node: RedisServer, *commands: Sequence[Any]) -> list[Any]:
        """Send several commands to one node over one connection; return their raw answers."""
        with node.client() as client:
            client.response_callbacks.clear()
            return [client.execute_command(*words) for words in commands]

    def info(self, node: RedisServer, *words: str) -> dict[str, str]:
        """The answer to INFO or CLUSTER INFO."""
        return _read_info(self.ask(node, *words))

    def view(self, node: RedisServer) -> list[Member]:
        """All nodes, as this one sees them."""
        return [Member.read(line) for line in self._lines(node)]

    def owners_by(self, node: RedisServer) -> dict[int, int]:
        """The first slot of each range, and its owner's port, as this node sees it."""
        return {row[0]: row[2][1] for row in self.ask(node, "CLUSTER", "SLOTS")}

    def id_of(self, node: RedisServer) -> str:
        return self.ask(node, "CLUSTER", "MYID").decode()

    def owner(self, slot: int) -> RedisServer:
        """The master that owns the slot, as most running nodes see it."""
        votes: list[int] = []
        for node in self.nodes:
            # During a failover, a node may know no owner.
            with suppress(redis.RedisError, ValueError):
                firsts = self.owners_by(node)
                votes.append(firsts[max(first for first in firsts if first <= slot)])
        return self.at(max(set(votes), key=votes.count))

    def owner_of(self, name: str) -> RedisServer:
        return self.owner(key_slot(name.encode()))

    def replica_of(self, master: RedisServer) -> RedisServer:
        """The replica that reports that it follows this master."""
        found: list[RedisServer] = []

        def follows() -> bool:
            found[:] = [
                node
                for node in self.nodes
                if self.info(node, "INFO", "replication").get("master_port") == str(master.port)
            ]
            return found != []

        wait_for(follows, "the master has a replica")
        return found[0]

    def other(self, node: RedisServer) -> RedisServer:
        """A master that is not this one."""
        count = self._masters
        found = {self.owner(index * SLOTS // count) for index in range(count)}
        return min(found - {node}, key=lambda other: other.port)

    def at(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    # -- changes to it -----------------------------------------------------------------------------

    def fail_over(self, slot: int) -> RedisServer:
        """Do a planned failover of the slot's master; return the new one, once it is known."""
        old = self.owner(slot)
        new = self.replica_of(old)
        ask_again_s = 0.0

        def has_taken_over() -> bool:
            # A replica gives up after five seconds, which may be too short on a busy machine.
            nonlocal ask_again_s
            if time.monotonic() > ask_again_s:
                ask_again_s = time.monotonic() + 6
                self.ask(new, "CLUSTER", "FAILOVER")
            return self.owner(slot) is new

        wait_for(has_taken_over, "the replica has taken over")
        return new

    def begin_to_move(self, slot: int, to: RedisServer) -> RedisServer:
        """Begin to move the slot; return the node that it leaves."""
        source = self.owner(slot)
        self.ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        return source

    def move_names(self, slot: int, source: RedisServer, to: RedisServer, most: int = 1_000) -> int:
        """Move at most this many of the slot's names; return how many were moved."""
        names = self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, most)
        self.migrate(source, to, names)
        return len(names)

    def migrate(self, source: RedisServer, to: RedisServer, names: Sequence[Any]) -> None:
        if names:
            self.ask(source, "MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", *names)

    def _close_slots(self) -> bool:
        """Slots in migration stay at their source; names that were moved already are lost."""
        for node in self.nodes:
            (own,) = (line for line in self._lines(node) if "myself" in line)
            if "slave" in own:  # Valkey's replicas show their masters' migrations
                continue
            for slot in re.findall(r"\[(\d+)-[<>]-", own):
                self.ask(node, "CLUSTER", "SETSLOT", slot, "STABLE")
        return True

    def _lines(self, node: RedisServer) -> list[str]:
        return self.ask(node, "CLUSTER", "NODES").decode().splitlines()

    def end_move(self, slot: int, source: RedisServer, to: RedisServer) -> None:
        """Complete the move of the slot."""
        for node in (to, source, *self.nodes):
            if node in (to, source) or self.ask(node, "ROLE")[0] == b"master":
                self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))


def wait_for(condition: Callable[[], bool], what: str, within_s: float = TIMEOUT_S) -> None:
    """Poll until the condition holds; a server error counts as false."""
    give_up = time.monotonic() + within_s
    while True:
        with suppress(redis.RedisError):
            if condition():
                return
        assert time.monotonic() < give_up, f"not within {within_s} s: {what}"
        time.sleep(0.02)


def names_in(slots: Iterable[int], pattern: str = "{%d}") -> list[str]:
    """For each slot a name in it."""
    wanted, found, number = set(slots), {}, 0
    while len(found) < len(wanted):
        name = pattern % number
        if (slot := key_slot(name.encode())) in wanted:
            found.setdefault(slot, name)
        number += 1
    return [found[slot] for slot in slots]


def _read_info(told: bytes) -> dict[str, str]:
    lines = told.decode().split()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _free_port_and_bus() -> int:
    """A free port with a free cluster bus port."""
    while True:
        port = _PORTS.free()
        if is_free(port + _TO_BUS):
            return port
