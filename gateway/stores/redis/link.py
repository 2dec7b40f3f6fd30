"""The connection to the master of the slot with all keys, for a worker's directory.

In a cluster the slot may move while the connection stays, and the old owner pushes no more changes.
An error that the cluster is down closes the connection, and the next one goes to the current owner;
the directory's heartbeat uses a name in the slot, so that the error arrives soon.

While the slot is moving, some names have moved already (ASK). Their commands go to the new node, on
a connection with the same setup: it pushes changes as well. Moving a name is a change on the node
that it leaves, so that at any time only one node is trusted for it.

Once the slot has moved (MOVED), all commands go to the new node, on such a connection. The one to
the old owner is closed as soon as all its commands are answered, and the new one is used until the
next connection to the owner is up. That may take until the whole cluster knows of the move; keys
that were moved have to be read again meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import hiredis

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.connection import Done, StoreConnection, command
from gateway.stores.redis.topology import Node, read_node
from gateway.tasks import spawn

_ASKING: Final = command("ASKING")
#: The pause before a command is tried again whose node is still connecting, and its deadline.
_AGAIN_S: Final = 0.01
_REDIRECT_TIMEOUT_S: Final = 0.5
#: The most redirections of a command: more are a loop.
_MOST_HOPS: Final = 5
#: The most nodes that a slot moves to before this connection is closed; usually it is one.
_MOST_AHEAD: Final = 8


@dataclass(slots=True, eq=False)
class _Redirected:
    """A command in flight. until_s: its deadline, once it was redirected"""

    encoded: bytes
    done: Done
    until_s: float = 0.0
    hops: int = 0


class SlotLink(StoreConnection):
    """A StoreConnection to the owner of the keys' slot."""

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float | Callable[[], float] = 1.0,
        on_push: Callable[[list[Any]], None] | None = None,
        setup: Sequence[bytes] = (),
        accepted: Sequence[str] = (),
        link: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        super().__init__(
            address, timeout_s=timeout_s, on_push=on_push, setup=setup, accepted=accepted
        )
        # The new node does not own the slot yet, and executes a command only after ASKING.
        ahead = tuple(word for encoded in setup for word in (_ASKING, encoded))
        self._make_link = partial(
            link, timeout_s=timeout_s, on_push=on_push, setup=ahead, accepted=accepted
        )
        self._ahead: dict[Node, StoreConnection] = {}
        #: Connections that get no more commands, but may still receive replies.
        self._stopping: set[StoreConnection] = set()
        #: Commands to the owner without an answer, and the node that it has redirected to (MOVED).
        self._unanswered = 0
        self._moved_to: Node | None = None
        self.on_up.append(self._owner_up)
        self.on_down.append(self._stop_ahead)

    def send(self, encoded: bytes, done: Done) -> None:
        request = _Redirected(encoded, done)
        if self._moved_to is not None:
            self._follow(request, self._moved_to)
        else:
            self._unanswered += 1
            super().send(encoded, partial(self._owner_answered, request))

    async def stop(self) -> None:
        await super().stop()
        self._moved_to = None
        self._stop_ahead()
        self._stop_links(tuple(self._stopping))

    def _owner_answered(self, request: _Redirected, reply: Any) -> None:
        self._unanswered -= 1
        self._answered(request, (self.server.host, self.server.port), reply)

    def _answered(self, request: _Redirected, by: Node, reply: Any) -> None:
        code, *words = str(reply).split(" ") if isinstance(reply, hiredis.ReplyError) else [""]
        node = read_node(words[1], by) if len(words) > 1 and code in ("ASK", "MOVED") else None
        if node is not None and request.hops < _MOST_HOPS:
            request.hops += 1
            if code == "MOVED":
                self._moved_to = node
            self._follow(request, node)
        else:
            request.done(reply)
            if code in ("MOVED", "CLUSTERDOWN"):
                self.reconnect(f"the keys cannot be read: {code}")
        if self._moved_to is not None and not self._unanswered:
            self.reconnect("the keys have moved to another node")

    # -- the nodes that the slot moves to ----------------------------------------------------------

    def _follow(self, request: _Redirected, node: Node) -> None:
        """Send a command to the node that the name has moved to."""
        loop = asyncio.get_running_loop()
        request.until_s = request.until_s or loop.time() + _REDIRECT_TIMEOUT_S
        is_known = node in self._ahead or len(self._ahead) < _MOST_AHEAD
        may_follow = is_known and (self.is_up or self._moved_to is not None)
        link = self._link_to(node) if may_follow else None
        if link is not None and link.is_up:
            link.send(_ASKING, _ignore)
            link.send(request.encoded, partial(self._answered, request, node))
        elif link is not None and loop.time() < request.until_s:
            loop.call_later(_AGAIN_S, self._follow, request, node)
        else:
            request.done(StoreDown("the node that a key has moved to is not connected"))

    def _link_to(self, node: Node) -> StoreConnection:
        link = self._ahead.get(node)
        if link is None:
            link = self._ahead[node] = self._make_link(self.address.at(*node))
            link.on_down.append(self._lost_ahead)
            link.start()
        return link

    def _lost_ahead(self, error: StoreDown) -> None:
        """Reconnect: the node pushes no more changes, and may have any of the keys."""
        self._moved_to = None
        self.reconnect(str(error))
        self._stop_ahead()

    def _owner_up(self) -> None:
        """The owner is connected: stop the other connections once their replies have arrived."""
        self._moved_to = None
        links, self._ahead = tuple(self._ahead.values()), {}
        for link in links:
            link.on_down.clear()
        self._stopping.update(links)
        asyncio.get_running_loop().call_later(_REDIRECT_TIMEOUT_S, self._stop_links, links)

    def _stop_ahead(self, _: StoreDown | None = None) -> None:
        """The owner is lost: close all other connections but the one that the slot has moved to."""
        for node in tuple(self._ahead):
            if node != self._moved_to:
                self._stop_links([self._ahead.pop(node)])

    def _stop_links(self, links: Iterable[StoreConnection]) -> None:
        for link in links:
            self._stopping.discard(link)
            link.on_down.clear()
            spawn(link.stop(), "store link's end")


def _ignore(_: object) -> None: ...
