"""A gateway whose sockets another one takes over, in this process."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.runtime.predecessor import Predecessor, connect
from gateway.runtime.sockets import InheritedSockets, bind, distinct
from gateway.runtime.take_over_server import TakeOverServer


class Scene:
    """A gateway that offers its sockets: two for clients, one of its admin listener."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ("a folder with a long name " * 8) / "take-over.sock"
        sockets = distinct((*bind("127.0.0.1", 0, 2), *bind("127.0.0.1", 0, 1)))
        self.sockets = InheritedSockets(sockets[:2], sockets[2:], "127.0.0.1:9901")
        self.taken_over_by: list[int] = []
        self.server = TakeOverServer(self.path, self.sockets, self.taken_over_by.append)

    def dial(self) -> socket.socket:
        """A connection that does not follow the protocol."""
        end = connect(self.path)
        assert end is not None
        return end

    async def answer_to(self, message: object) -> dict[str, object]:
        """The answer to a first message."""

        def ask() -> dict[str, object]:
            with suppress(ConnectionError), self.dial() as end:
                end.send(json.dumps(message).encode())
                return json.loads(end.recv(1000) or b"{}")
            return {}

        return await asyncio.to_thread(ask)


async def find_predecessor(scene: Scene) -> Predecessor:
    predecessor = await asyncio.to_thread(Predecessor.find, scene.path)
    assert predecessor is not None
    return predecessor


def fail_as_successor(predecessor: Predecessor) -> None:
    """Fail as a successor."""
    predecessor.sockets.close()
    predecessor.close()


async def check_still_offering(scene: Scene) -> None:
    """Check that it still offers its sockets."""
    fail_as_successor(await find_predecessor(scene))
    assert scene.taken_over_by == []


@contextmanager
def fake_predecessor(path: Path) -> Iterator[socket.socket]:
    """A socket at which the test acts as the predecessor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        yield listening
