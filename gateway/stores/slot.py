"""The connection to the master of the slot that all keys lie in, for a worker's directory.

In a cluster the slot may move while the connection stays, and whoever stayed behind would hear of
no change. Any word that it has moved (MOVED, or that the cluster is down) ends the connection, and
the next one goes to the slot's owner of then; the directory's heartbeat asks for a name in the
slot, so that the word comes soon.

While the slot is on its way some names have gone ahead (ASK). They are asked for where they are, on
a connection with the same set-up: changes there are heard of just as here. Moving a name is a
change to the node that it leaves, so that no more than one node is believed about it at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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
        self.on_down.append(self._leave)

    def send(self, encoded: bytes, done: Done) -> None:
        super().send(encoded, partial(self._answered, encoded, done))

    async def stop(self) -> None:
        await super().stop()
        self._leave()

    def _answered(self, encoded: bytes, done: Done, reply: Any) -> None:
        code, *words = str(reply).split(" ") if isinstance(reply, hiredis.ReplyError) else [""]
        if code == "ASK" and len(words) > 1:
            until_s = asyncio.get_running_loop().time() + _PATIENCE_S
            self._follow(encoded, done, read_node(words[1], self.address.hosts[0]), until_s)
            return
        done(reply)
        if code in ("MOVED", "CLUSTERDOWN"):
            self.give_up(f"the keys are elsewhere: {code}")

    def _follow(self, encoded: bytes, done: Done, node: Node, until_s: float) -> None:
        """Ask the node that the name has gone ahead to."""
        loop = asyncio.get_running_loop()
        link = self._link_to(node) if self.is_up else None
        if link is not None and link.is_up:
            link.send(_ASKING, _ignore)
            link.send(encoded, done)
        elif link is not None and loop.time() < until_s:
            loop.call_later(_AGAIN_S, self._follow, encoded, done, node, until_s)
        else:
            done(StoreDown("the node that a key has gone to is not connected"))

    def _link_to(self, node: Node) -> StoreLink:
        link = self._ahead.get(node)
        if link is None:
            link = self._ahead[node] = self._make_link(self.address.at(*node))
            link.on_down.append(self._lost_one)
            link.start()
        return link

    def _lost_one(self, error: StoreDown) -> None:
        """Changes there are not heard of any more, and nobody knows which keys are there."""
        self.give_up(str(error))

    def _leave(self, _: StoreDown | None = None) -> None:
        links, self._ahead = self._ahead, {}
        for link in links.values():
            link.on_down.clear()
            spawn(link.stop(), "store link's end")


def _ignore(_: object) -> None: ...
