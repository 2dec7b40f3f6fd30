"""The masters of a Redis Cluster: a connection to each, and each command to its slot's owner.

The owners of the slots are read through redis-py (see `topology`): whenever a node reports a change
or is lost, and periodically. In between, redirections correct them. After each of these errors the
node has done nothing, and the command is sent again:

MOVED     another node owns the slot now: to that node, like all later commands
ASK       the slot is moving, and the name has moved already: to the other node, this time only
NOSCRIPT  the node does not have the scripts: to the same node, after loading them

All of that happens within the store's timeout; then the callback gets StoreDown. A node that is
down fails only the commands of its own slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import hiredis
from redis.crc import key_slot

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.connection import Done, StoreConnection, command
from gateway.stores.redis.topology import MOST_MASTERS, SLOTS, Node, read_node, read_owners
from gateway.tasks import end, spawn

_ASKING: Final = command("ASKING")
#: How often the owners are read: normally, and while a node is down or a slot has just moved.
_REFRESH_S: Final = 10.0
_SOON_S: Final = 0.25
_GATHER_S: Final = 0.1
#: The pause before a command is tried again whose node is still connecting.
_AGAIN_S: Final = 0.005
#: The most redirections of a command: more are a loop.
_MOST_HOPS: Final = 5


@dataclass(slots=True, eq=False)
class _Member:
    """A node and the connection to it.

    setup:   that of the connection; it changes with the slots that the node owns
    added_s: when the node was first named
    """

    link: StoreConnection
    setup: list[bytes]
    added_s: float
    was_up: bool = False


@dataclass(slots=True, eq=False)
class _Request:
    """A command in flight. done: None once it was answered"""

    slot: int
    encoded: bytes
    done: Done | None
    until_s: float
    hops: int = 0
    reloaded: bool = False

    def finish(self, reply: Any) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(reply)


class ClusterNodes:
    """Like a StoreConnection, but to a cluster; `send` takes the name that a command uses.

    timeout_s: of a command, redirections included; a callable is called each time
    load:      commands for every node: the scripts
    probe:     commands that a node must execute before it is up, by a hash tag of its slots
    on_up, on_down: listeners, called when every slot's node is up, and when one of them is lost
    on_failed: listeners, called with the reason when a node or the owners cannot be reached
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float | Callable[[], float] = 1.0,
        load: Sequence[bytes] = (),
        probe: Callable[[str], Sequence[bytes]] | None = None,
        link: Callable[..., StoreConnection] = StoreConnection,
        read: Callable[..., Awaitable[list[Node | None]]] = read_owners,
    ) -> None:
        self.address = address
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        self.on_failed: list[Callable[[StoreDown], None]] = []
        #: The last failure of a node, or of reading the owners; None: nothing has failed yet.
        self.last_error: StoreDown | None = None
        self.timeout_s = timeout_s if callable(timeout_s) else lambda: timeout_s
        self._load = tuple(load)
        self._probe = probe
        self._link = link
        self._read = read
        self._owners: list[Node | None] = [None] * SLOTS
        self._masters: frozenset[Node] = frozenset()
        self._members: dict[Node, _Member] = {}
        self._task: asyncio.Task[None] | None = None
        self._stale = asyncio.Event()
        self._up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        """Is every node that owns a slot connected?"""
        return self._up.is_set()

    def start(self) -> None:
        """Connect, and reconnect until `stop`. Needs a running loop."""
        if self._task is None:
            self._task = spawn(self._run(), "cluster nodes")

    async def stop(self) -> None:
        """Disconnect, and do not reconnect; harmless when repeated."""
        task, self._task = self._task, None
        await end(task)
        members, self._members = self._members, {}
        await asyncio.gather(*(member.link.stop() for member in members.values()))

    async def wait_up(self) -> None:
        """Return once every node is connected."""
        await self._up.wait()

    def send(self, name: str, encoded: bytes, done: Done) -> None:
        """Send one command that uses this name; `done` is called once, with reply or StoreDown."""
        self.send_to(key_slot(name.encode()), encoded, done)

    def send_to(self, slot: int, encoded: bytes, done: Done, until_s: float | None = None) -> None:
        """The same by slot. until_s: the deadline, by the loop's clock"""
        if until_s is None:
            until_s = asyncio.get_running_loop().time() + self.timeout_s()
        request = _Request(slot, encoded, done, until_s)
        owner = self._owners[slot]
        if owner is None:
            request.finish(StoreDown(f"no node of the cluster is known to own slot {slot}"))
        else:
            self._dispatch(request, owner, asking=False)

    def reconnect(self, reason: str, slot: int | None = None) -> None:
        """Close the connection to the slot's owner, or to all nodes, and open it again."""
        owners = self._masters if slot is None else (self._owners[slot],)
        for node, member in list(self._members.items()):
            if node in owners:
                member.link.reconnect(reason)

    # -- commands ----------------------------------------------------------------------------------

    def _dispatch(self, request: _Request, node: Node, asking: bool) -> None:
        if self._task is None:
            request.finish(StoreDown("the gateway closed the connection"))
            return
        if node not in self._members and len(self._members) >= MOST_MASTERS:
            request.finish(StoreDown(f"the cluster names more than {MOST_MASTERS} nodes"))
            return
        member = self._member(node)
        loop = asyncio.get_running_loop()
        if member.link.is_up:
            if asking:
                member.link.send(_ASKING, _ignore)
            member.link.send(request.encoded, partial(self._answered, request, node, asking))
        elif not member.was_up and loop.time() < min(
            request.until_s, member.added_s + self.timeout_s()
        ):
            # A new node, still connecting.
            loop.call_later(_AGAIN_S, self._dispatch, request, node, asking)
        else:
            request.finish(member.link.last_error or StoreDown("the node is not connected"))

    def _answered(self, request: _Request, node: Node, asking: bool, reply: Any) -> None:
        if not isinstance(reply, hiredis.ReplyError):
            request.finish(reply)
            return
        code, *words = str(reply).split(" ")
        if code == "NOSCRIPT" and not request.reloaded:
            request.reloaded = True
            for encoded in self._load:
                self._member(node).link.send(encoded, _ignore)
            self._send_on(request, node, asking)
        elif code in ("MOVED", "ASK") and len(words) > 1 and (to := read_node(words[1], node)):
            if code == "MOVED":
                self._owners[request.slot] = to
                self._stale.set()
            self._send_on(request, to, asking=code == "ASK")
        else:
            if code == "CLUSTERDOWN":
                self._stale.set()
            request.finish(reply)

    def _send_on(self, request: _Request, node: Node, asking: bool) -> None:
        if request.hops == 0:
            loop = asyncio.get_running_loop()
            late = StoreDown(f"the store did not answer within {self.timeout_s():g} s")
            loop.call_at(request.until_s, request.finish, late)
        request.hops += 1
        if request.hops > _MOST_HOPS:
            request.finish(StoreDown("the nodes of the cluster redirect to one another"))
        elif request.done is not None:
            self._dispatch(request, node, asking)

    # -- the nodes ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._stale.clear()
            try:
                self._update_owners(await self._read(self.address, self._masters))
            except StoreDown as error:
                self._failed(error)
            # During a failover a node may not know the owner of a slot.
            is_complete = self.is_up and None not in self._owners
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S if is_complete else _SOON_S):
                    await self._stale.wait()
                    # Several slots usually move at a time, and reading the owners takes
                    # milliseconds.
                    await asyncio.sleep(_GATHER_S)

    def _update_owners(self, owners: list[Node | None]) -> None:
        """Use these nodes as the owners of the slots."""
        self._owners = owners
        self._masters = frozenset(owner for owner in owners if owner is not None)
        for node in self._masters:
            member = self._member(node)
            member.setup[:] = self._setup(node)
        now_s = asyncio.get_running_loop().time()
        for node, member in list(self._members.items()):
            # A slot may be moving to a node that owns none yet.
            if node not in self._masters and now_s - member.added_s > _REFRESH_S:
                del self._members[node]
                spawn(member.link.stop(), "store link's end")
        self._update_status()

    def _member(self, node: Node) -> _Member:
        member = self._members.get(node)
        if member is None:
            setup = list(self._load)
            link = self._link(self.address.at(*node), timeout_s=self.timeout_s, setup=setup)
            member = _Member(link, setup, asyncio.get_running_loop().time())
            self._members[node] = member
            link.on_up.append(partial(self._came_up, member))
            link.on_down.append(self._went_down)
            link.on_failed.append(self._failed)
            link.start()
        return member

    def _setup(self, node: Node) -> Sequence[bytes]:
        if self._probe is None:
            return self._load
        tags = (str(number) for number in count())
        return self._probe(
            next(tag for tag in tags if self._owners[key_slot(tag.encode())] == node)
        )

    def _came_up(self, member: _Member) -> None:
        member.was_up = True
        self._update_status()

    def _failed(self, error: StoreDown) -> None:
        self.last_error = error
        for listener in self.on_failed:
            listener(error)

    def _went_down(self, error: StoreDown) -> None:
        self.last_error = error
        self._stale.set()
        self._update_status()

    def _update_status(self) -> None:
        """Call the listeners if all nodes are up now, or if one is no longer up."""
        up = bool(self._masters) and all(
            node in self._members and self._members[node].link.is_up for node in self._masters
        )
        if up and not self._up.is_set():
            self._up.set()
            for listener in self.on_up:
                listener()
        elif not up and self._up.is_set():
            self._up.clear()
            error = self.last_error or StoreDown("a node of the cluster is not connected yet")
            for on_down in self.on_down:
                on_down(error)


def _ignore(_: object) -> None: ...
