"""The masters of a Redis Cluster: a link to each, and every command to the one that owns its slot.

Who owns which slot is read through redis-py (see `topology`), anew whenever a node says that it has
changed or is lost, and every so often besides. In between the nodes themselves put it right:

MOVED     nothing was done, another node owns the slot now: noted, and sent there
ASK       nothing was done, the slot is on its way and the name went ahead: sent there this once
NOSCRIPT  nothing was done, the node has forgotten the scripts: told them again, and sent again

All of that happens within the store's timeout, after which whoever waits is told StoreDown. A node
that is away costs its own slots their answers, and no others.
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
from gateway.stores.connect import StoreAddress
from gateway.stores.topology import MOST_MASTERS, SLOTS, Node, read_node, read_owners
from gateway.stores.wire import Done, StoreLink, command
from gateway.tasks import spawn

_ASKING: Final = command("ASKING")
#: How often the owners are read: while all is well, and while a node is away or has just moved.
_REFRESH_S: Final = 10.0
_SOON_S: Final = 0.25
_GATHER_S: Final = 0.1
#: How soon a node that is being connected to is tried again.
_AGAIN_S: Final = 0.005
#: A command that is sent on so often goes in circles.
_MOST_HOPS: Final = 5


@dataclass(slots=True, eq=False)
class _Member:
    """A node and the link to it.

    setup: the link's; it changes with the slots that the node owns
    met_s: when it was first heard of
    """

    link: StoreLink
    setup: list[bytes]
    met_s: float
    was_up: bool = False


@dataclass(slots=True, eq=False)
class _Trip:
    """One command on its way. done: None once it was answered."""

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
    """Stands where a StoreLink would; `send` is told the name that a command is about.

    timeout_s: the store's, from the first send to the last answer; a callable is asked each time
    load:      commands for every node: the scripts
    trial:     what a node must carry out before it counts as up, by a hash tag among its slots
    on_up, on_down: listeners: when every slot's node is up, and when one of them is lost
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float | Callable[[], float] = 1.0,
        load: Sequence[bytes] = (),
        trial: Callable[[str], Sequence[bytes]] | None = None,
        link: Callable[..., StoreLink] = StoreLink,
        read: Callable[..., Awaitable[list[Node | None]]] = read_owners,
    ) -> None:
        self.address = address
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        #: Why a node, or all of them, could not be reached last; None while nothing has failed.
        self.last_error: StoreDown | None = None
        self.timeout_s = timeout_s if callable(timeout_s) else lambda: timeout_s
        self._load = tuple(load)
        self._trial = trial
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
        """Can every node that owns a slot be asked?"""
        return self._up.is_set()

    def start(self) -> None:
        """Begin to connect, and keep at it until `stop`. Needs a running loop."""
        if self._task is None:
            self._task = spawn(self._run(), "cluster nodes")

    async def stop(self) -> None:
        """Disconnect for good; harmless when repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        members, self._members = self._members, {}
        await asyncio.gather(*(member.link.stop() for member in members.values()))

    async def wait_up(self) -> None:
        """Return once every node is connected."""
        await self._up.wait()

    def send(self, name: str, encoded: bytes, done: Done) -> None:
        """Send one command about this name; `done` gets the reply, or StoreDown, once."""
        self.send_to(key_slot(name.encode()), encoded, done)

    def send_to(self, slot: int, encoded: bytes, done: Done, until_s: float | None = None) -> None:
        """The same by slot. until_s: when the answer is due at the latest, by the loop's clock."""
        if until_s is None:
            until_s = asyncio.get_running_loop().time() + self.timeout_s()
        trip = _Trip(slot, encoded, done, until_s)
        owner = self._owners[slot]
        if owner is None:
            trip.finish(StoreDown(f"no node of the cluster is known to own slot {slot}"))
        else:
            self._dispatch(trip, owner, asking=False)

    def give_up(self, reason: str, slot: int | None = None) -> None:
        """Take the node that owns the slot, or all, for lost: it cannot do what it is there for."""
        owners = self._masters if slot is None else (self._owners[slot],)
        for node, member in list(self._members.items()):
            if node in owners:
                member.link.give_up(reason)

    # -- a command's way ---------------------------------------------------------------------------

    def _dispatch(self, trip: _Trip, node: Node, asking: bool) -> None:
        if self._task is None:
            trip.finish(StoreDown("the connection was closed on purpose"))
            return
        if node not in self._members and len(self._members) >= MOST_MASTERS:
            trip.finish(StoreDown(f"the cluster names more than {MOST_MASTERS} nodes"))
            return
        member = self._member(node)
        loop = asyncio.get_running_loop()
        if member.link.is_up:
            if asking:
                member.link.send(_ASKING, _ignore)
            member.link.send(trip.encoded, partial(self._answered, trip, node, asking))
        elif not member.was_up and loop.time() < min(trip.until_s, member.met_s + self.timeout_s()):
            # Met a moment ago: it takes that long to connect.
            loop.call_later(_AGAIN_S, self._dispatch, trip, node, asking)
        else:
            trip.finish(member.link.last_error or StoreDown("the node is not connected"))

    def _answered(self, trip: _Trip, node: Node, asking: bool, reply: Any) -> None:
        if not isinstance(reply, hiredis.ReplyError):
            trip.finish(reply)
            return
        code, *words = str(reply).split(" ")
        if code == "NOSCRIPT" and not trip.reloaded:
            trip.reloaded = True
            for encoded in self._load:
                self._member(node).link.send(encoded, _ignore)
            self._send_on(trip, node, asking)
        elif code in ("MOVED", "ASK") and len(words) > 1 and (to := read_node(words[1], node)):
            if code == "MOVED":
                self._owners[trip.slot] = to
                self._stale.set()
            self._send_on(trip, to, asking=code == "ASK")
        else:
            if code == "CLUSTERDOWN":
                self._stale.set()
            trip.finish(reply)

    def _send_on(self, trip: _Trip, node: Node, asking: bool) -> None:
        if trip.hops == 0:
            loop = asyncio.get_running_loop()
            late = StoreDown(f"the store did not answer within {self.timeout_s():g} s")
            loop.call_at(trip.until_s, trip.finish, late)
        trip.hops += 1
        if trip.hops > _MOST_HOPS:
            trip.finish(StoreDown("the nodes of the cluster name one another as a slot's owner"))
        elif trip.done is not None:
            self._dispatch(trip, node, asking)

    # -- the nodes ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._stale.clear()
            try:
                self._take(await self._read(self.address, self._masters))
            except StoreDown as error:
                self.last_error = error
            # In the middle of a failover a node may know of no owner at all.
            is_settled = self.is_up and None not in self._owners
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S if is_settled else _SOON_S):
                    await self._stale.wait()
                    # Slots seldom move alone, and reading them all takes milliseconds.
                    await asyncio.sleep(_GATHER_S)

    def _take(self, owners: list[Node | None]) -> None:
        """From here on these own the slots."""
        self._owners = owners
        self._masters = frozenset(owner for owner in owners if owner is not None)
        for node in self._masters:
            member = self._member(node)
            member.setup[:] = self._setup(node)
        now_s = asyncio.get_running_loop().time()
        for node, member in list(self._members.items()):
            # One that owns nothing yet may be where a slot is on its way to.
            if node not in self._masters and now_s - member.met_s > _REFRESH_S:
                del self._members[node]
                spawn(member.link.stop(), "store link's end")
        self._note()

    def _member(self, node: Node) -> _Member:
        member = self._members.get(node)
        if member is None:
            setup = list(self._load)
            link = self._link(self.address.at(*node), timeout_s=self.timeout_s, setup=setup)
            member = _Member(link, setup, asyncio.get_running_loop().time())
            self._members[node] = member
            link.on_up.append(partial(self._came_up, member))
            link.on_down.append(self._went_down)
            link.start()
        return member

    def _setup(self, node: Node) -> Sequence[bytes]:
        if self._trial is None:
            return self._load
        tags = (str(number) for number in count())
        return self._trial(
            next(tag for tag in tags if self._owners[key_slot(tag.encode())] == node)
        )

    def _came_up(self, member: _Member) -> None:
        member.was_up = True
        self._note()

    def _went_down(self, error: StoreDown) -> None:
        self.last_error = error
        self._stale.set()
        self._note()

    def _note(self) -> None:
        """Tell the listeners where all being up has begun or ended."""
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
            for told in self.on_down:
                told(error)


def _ignore(_: object) -> None: ...
