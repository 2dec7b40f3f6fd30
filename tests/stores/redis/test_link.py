"""The connection to the slot of the keys while it moves, over scripted connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hiredis import ReplyError

from gateway.domain.ports import StoreDown
from gateway.stores.redis import link as module
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.connection import command
from gateway.stores.redis.link import SlotLink
from gateway.stores.redis.topology import Node
from tests.kit.eventually import eventually
from tests.kit.scripted_link import ScriptedLink

A, B, C = ("10.0.0.1", 7000), ("10.0.0.2", 7000), ("10.0.0.3", 7000)
ASKING, TRACK, ASK = command("ASKING"), command("TRACK"), command("GET", "name")
MOVED_TO_B, MOVED_TO_C = (ReplyError(f"MOVED 1 {host}:{port}") for host, port in (B, C))
ASK_B = ReplyError(f"ASK 1 {B[0]}:{B[1]}")


class Rig:
    """A link with a scripted owner and scripted other nodes."""

    def __init__(self) -> None:
        self.links: dict[Node, ScriptedLink] = {}
        self.answers: list[Any] = []
        self.changes: list[str] = []
        self.slot = SlotLink(StoreAddress("cluster", hosts=(A,)), setup=(TRACK,), link=self._link)
        self.slot.on_up.append(lambda: self.changes.append("up"))
        self.slot.on_down.append(lambda error: self.changes.append(f"down: {error}"))
        self.owner: ScriptedLink
        self.connect()

    def _link(self, address: StoreAddress, **options: Any) -> ScriptedLink:
        link = self.links[(address.host, address.port)] = ScriptedLink(address, **options)
        return link

    def connect(self) -> None:
        """A new connection to the owner."""
        self.slot.server = self.slot.address.at(*A)
        self.owner = ScriptedLink(self.slot.address)
        self.owner.on_down.append(self.slot._lost_connection)
        self.owner.close = self.owner.reconnect  # type: ignore[attr-defined] # as a Wire has it
        self.owner.is_up = True
        self.slot._connected(self.owner)  # type: ignore[arg-type]

    def ask(self) -> None:
        self.slot.send(ASK, self.answers.append)

    def answer_at(self, node: Node, value: Any) -> None:
        """Answer a redirected command, and the ASKING before it."""
        self.links[node].reply(ASKING, b"OK")
        self.links[node].reply(ASK, value)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    await rig.slot.stop()


async def sent_to(rig: Rig, node: Node, count: int = 1) -> None:
    """Wait until this node has received that many commands."""
    await eventually(lambda: len(rig.links[node].sent) == 2 * count, "they are asked there")


async def test_a_name_that_went_ahead(rig: Rig) -> None:
    """ASK redirects one command, to a connection with client tracking; the next is the owner's."""
    rig.ask()
    rig.owner.reply(ASK, ASK_B)
    assert rig.links[B].setup == (ASKING, TRACK)
    rig.links[B].connect()
    await sent_to(rig, B)
    rig.answer_at(B, b"there")
    rig.ask()
    rig.owner.reply(ASK, b"here")
    assert rig.answers == [b"there", b"here"]
    assert rig.changes == ["up"]


async def test_a_slot_that_has_moved(rig: Rig) -> None:
    """The command is answered by the new owner, and so are later ones."""
    for _ in range(3):
        rig.ask()
    rig.owner.reply(ASK, b"before")
    rig.owner.reply(ASK, MOVED_TO_B)
    rig.ask()
    rig.links[B].connect()
    assert rig.changes == ["up"], "an answer is still due here"
    rig.owner.reply(ASK, MOVED_TO_B)
    assert rig.changes == ["up", "down: the keys have moved to another node"]
    rig.ask()
    await sent_to(rig, B, 4)
    for number in range(4):
        rig.answer_at(B, b"%d" % number)
    assert rig.answers == [b"before", b"0", b"1", b"2", b"3"]


async def test_a_node_without_a_host(rig: Rig) -> None:
    """A redirection without a host means the host of the node that sent it."""
    rig.slot.server = rig.slot.address.at(*C)
    rig.ask()
    rig.owner.reply(ASK, ReplyError("MOVED 1 :7001"))
    assert list(rig.links) == [(C[0], 7001)]


async def test_the_owner_is_connected_to(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the reconnection the owner is used; answers due from another node are awaited."""
    monkeypatch.setattr(module, "_REDIRECT_TIMEOUT_S", 0.2)
    rig.ask()
    rig.owner.reply(ASK, MOVED_TO_B)
    rig.links[B].connect()
    await sent_to(rig, B)
    rig.connect()
    rig.ask()
    rig.owner.reply(ASK, b"owner")
    assert not rig.links[B].stopped
    rig.answer_at(B, b"late")
    assert rig.answers == [b"owner", b"late"]
    await eventually(lambda: rig.links[B].stopped, "it is left")
    assert rig.changes[-1] == "up"


async def test_it_moves_on(rig: Rig) -> None:
    """A new owner may redirect again: one command (ASK), or all (MOVED)."""
    rig.ask()
    rig.owner.reply(ASK, MOVED_TO_B)
    rig.links[B].connect()
    await sent_to(rig, B)
    rig.answer_at(B, ReplyError(f"ASK 1 {C[0]}:{C[1]}"))
    rig.links[C].connect()
    await sent_to(rig, C)
    rig.answer_at(C, b"ahead")
    rig.ask()
    rig.answer_at(B, MOVED_TO_C)
    rig.answer_at(C, b"moved")
    rig.ask()
    rig.answer_at(C, b"stays")
    assert rig.answers == [b"ahead", b"moved", b"stays"]


async def test_nodes_that_name_one_another(rig: Rig) -> None:
    """A command that is redirected in circles gets the last redirection as its answer."""
    rig.ask()
    rig.owner.reply(ASK, MOVED_TO_B)
    rig.links[B].connect()
    await sent_to(rig, B)
    for _ in range(module._MOST_HOPS - 1):
        rig.answer_at(B, MOVED_TO_B)
    assert rig.answers == []
    rig.answer_at(B, MOVED_TO_B)
    assert rig.answers == [MOVED_TO_B]


async def test_the_new_owner_is_lost(rig: Rig) -> None:
    """Commands at a lost new owner get the error, and nothing more is sent to it."""
    rig.ask()
    rig.owner.reply(ASK, MOVED_TO_B)
    rig.links[B].connect()
    await sent_to(rig, B)
    rig.links[B].reconnect("it died")
    rig.ask()
    reasons = ["it died", "the keys have moved to another node"]
    assert [str(answer) for answer in rig.answers] == reasons
    await eventually(lambda: rig.links[B].stopped, "it is left")


async def test_the_new_owner_cannot_be_reached(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded."""
    monkeypatch.setattr(module, "_REDIRECT_TIMEOUT_S", 0.05)
    rig.ask()
    rig.owner.reply(ASK, MOVED_TO_B)
    await eventually(lambda: rig.answers != [], "it is answered")
    assert isinstance(rig.answers[0], StoreDown)


async def test_a_cluster_that_is_down(rig: Rig) -> None:
    """CLUSTERDOWN is the answer, and the connection is closed."""
    rig.ask()
    down = ReplyError("CLUSTERDOWN The cluster is down")
    rig.owner.reply(ASK, down)
    assert rig.answers == [down]
    assert "CLUSTERDOWN" in rig.changes[-1]


async def test_the_end(rig: Rig) -> None:
    """Stopping closes all connections, and nothing is sent after it."""
    rig.ask()
    rig.owner.reply(ASK, MOVED_TO_B)
    rig.links[B].connect()
    await sent_to(rig, B)
    await rig.slot.stop()
    await eventually(lambda: rig.links[B].stopped, "it is left")
    rig.ask()
    assert all(isinstance(answer, StoreDown) for answer in rig.answers)
    assert len(rig.answers) == 2
    await asyncio.sleep(0)
