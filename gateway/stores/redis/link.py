"""The connection to the master of the slot that all keys lie in, for a worker's directory.

In a cluster the slot may move while the connection stays, and whoever stayed behind would hear of
no change. A word that the cluster is down ends the connection, and the next one goes to the slot's
owner of then; the directory's heartbeat asks for a name in the slot, so that the word comes soon.

While the slot is on its way some names have gone ahead (ASK). They are asked for where they are, on
a connection with the same set-up: changes there are heard of just as here. Moving a name is a
change to the node that it leaves, so that no more than one node is believed about it at any time.

Once it has moved (MOVED) everything is asked there, on such a connection, from that moment on. The
one to the last owner is given up as soon as all has been answered that was asked there, and that
connection stands in until the next one to the owner is up: until the whole cluster has heard of the
move that may take a while, in which keys whose names were moved have to be read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import hiredis

from gateway.domain.ports import StoreDown
from gateway.stores.connect import StoreAddress
from gateway.stores.topology import Node, read_node
from gateway.stores.wire import Done, StoreLink, command
from gateway.tasks import spawn

_ASKING: Final = command("ASKING")
#: How soon a node that is being connected to is tried again, and how long for.
_AGAIN_S: Final = 0.01
_PATIENCE_S: Final = 0.5
#: A command that is sent on so often goes in circles.
_MOST_HOPS: Final = 5
#: A slot is on its way to one node, and seldom on to another before this connection has ended.
_MOST_AHEAD: Final = 8


@dataclass(slots=True, eq=False)
class _Trip:
    """One command on its way. until_s: when it is given up, once it had to be sent on."""

    encoded: bytes
    done: Done
    until_s: float = 0.0
    hops: int = 0


class SlotLink(StoreLink):
    """A StoreLink to whoever owns the slot of the keys."""

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float | Callable[[], float] = 1.0,
        on_push: Callable[[list[Any]], None] | None = None,
        setup: Sequence[bytes] = (),
        link: Callable[..., StoreLink] = StoreLink,
    ) -> None:
        super().__init__(address, timeout_s=timeout_s, on_push=on_push, setup=setup)
        # The node ahead does not own the slot, and does what it is asked only after this word.
        ahead = tuple(word for encoded in setup for word in (_ASKING, encoded))
        self._make_link = partial(link, timeout_s=timeout_s, on_push=on_push, setup=ahead)
        self._ahead: dict[Node, StoreLink] = {}
        #: Those that are not asked any more, with answers that may still come.
        self._left: set[StoreLink] = set()
        #: Commands to the owner that were not answered yet, and the node that it has named instead.
        self._unanswered = 0
        self._moved_to: Node | None = None
        self.on_up.append(self._arrived)
        self.on_down.append(self._leave)

    def send(self, encoded: bytes, done: Done) -> None:
        trip = _Trip(encoded, done)
        if self._moved_to is not None:
            self._follow(trip, self._moved_to)
        else:
            self._unanswered += 1
            super().send(encoded, partial(self._owner_answered, trip))

    async def stop(self) -> None:
        await super().stop()
        self._moved_to = None
        self._leave()
        self._end(tuple(self._left))

    def _owner_answered(self, trip: _Trip, reply: Any) -> None:
        self._unanswered -= 1
        self._answered(trip, (self.server.host, self.server.port), reply)

    def _answered(self, trip: _Trip, by: Node, reply: Any) -> None:
        code, *words = str(reply).split(" ") if isinstance(reply, hiredis.ReplyError) else [""]
        node = read_node(words[1], by) if len(words) > 1 and code in ("ASK", "MOVED") else None
        if node is not None and trip.hops < _MOST_HOPS:
            trip.hops += 1
            if code == "MOVED":
                self._moved_to = node
            self._follow(trip, node)
        else:
            trip.done(reply)
            if code in ("MOVED", "CLUSTERDOWN"):
                self.give_up(f"the keys cannot be asked for: {code}")
        if self._moved_to is not None and not self._unanswered:
            self.give_up("the keys have moved to another node")

    # -- elsewhere ---------------------------------------------------------------------------------

    def _follow(self, trip: _Trip, node: Node) -> None:
        """Ask the node that the name has gone to."""
        loop = asyncio.get_running_loop()
        trip.until_s = trip.until_s or loop.time() + _PATIENCE_S
        is_known = node in self._ahead or len(self._ahead) < _MOST_AHEAD
        may_follow = is_known and (self.is_up or self._moved_to is not None)
        link = self._link_to(node) if may_follow else None
        if link is not None and link.is_up:
            link.send(_ASKING, _ignore)
            link.send(trip.encoded, partial(self._answered, trip, node))
        elif link is not None and loop.time() < trip.until_s:
            loop.call_later(_AGAIN_S, self._follow, trip, node)
        else:
            trip.done(StoreDown("the node that a key has gone to is not connected"))

    def _link_to(self, node: Node) -> StoreLink:
        link = self._ahead.get(node)
        if link is None:
            link = self._ahead[node] = self._make_link(self.address.at(*node))
            link.on_down.append(self._lost_one)
            link.start()
        return link

    def _lost_one(self, error: StoreDown) -> None:
        """Changes there are not heard of any more, and nobody knows which keys are there."""
        self._moved_to = None
        self.give_up(str(error))
        self._leave()

    def _arrived(self) -> None:
        """The owner is connected to. What is still to be answered elsewhere is waited for."""
        self._moved_to = None
        links, self._ahead = tuple(self._ahead.values()), {}
        for link in links:
            link.on_down.clear()
        self._left.update(links)
        asyncio.get_running_loop().call_later(_PATIENCE_S, self._end, links)

    def _leave(self, _: StoreDown | None = None) -> None:
        """The owner is lost: nobody is asked elsewhere, but where the slot has moved to."""
        for node in tuple(self._ahead):
            if node != self._moved_to:
                self._end([self._ahead.pop(node)])

    def _end(self, links: Iterable[StoreLink]) -> None:
        for link in links:
            self._left.discard(link)
            link.on_down.clear()
            spawn(link.stop(), "store link's end")


def _ignore(_: object) -> None: ...
