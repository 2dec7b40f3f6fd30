"""Routing commands to the node that owns a slot, over scripted links."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hiredis import ReplyError
from redis.crc import key_slot

from gateway.domain.ports import StoreDown
from gateway.stores.redis import cluster as module
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.cluster import ClusterNodes
from gateway.stores.redis.connection import command
from gateway.stores.redis.topology import SLOTS, Node
from tests.kit.eventually import eventually
from tests.kit.scripted_link import ScriptedLink

A, B, C = ("10.0.0.1", 7000), ("10.0.0.2", 7000), ("10.0.0.3", 7000)
ADDRESS = StoreAddress("cluster", hosts=(A,), username="app", password="hunter2")
ASKING, LOAD, ASK = command("ASKING"), command("LOAD"), command("GET", "name")
SLOT = key_slot(b"name")


class Rig:
    """Nodes over scripted links. `owners` is what is read next; an exception is raised."""

    def __init__(self, **options: Any) -> None:
        self.owners: list[Node | None] | StoreDown = halves(A, B)
        self.reads = 0
        self.links: dict[Node, ScriptedLink] = {}
        self.connects = True
        self.changes: list[str] = []
        self.answers: list[Any] = []
        self.nodes = ClusterNodes(
            ADDRESS, load=(LOAD,), link=self.link, read=self.read, **{"timeout_s": 60.0} | options
        )
        self.nodes.on_up.append(lambda: self.changes.append("up"))
        self.nodes.on_down.append(lambda error: self.changes.append(f"down: {error}"))

    def link(self, address: StoreAddress, **options: Any) -> ScriptedLink:
        link = self.links[(address.host, address.port)] = ScriptedLink(address, **options)
        if self.connects:
            asyncio.get_running_loop().call_soon(link.connect)
        return link

    async def read(self, address: StoreAddress, known: object) -> list[Node | None]:
        self.reads += 1
        if isinstance(self.owners, StoreDown):
            raise self.owners
        return list(self.owners)

    def ask(self) -> None:
        self.nodes.send("name", ASK, self.answers.append)


def halves(first: Node | None, second: Node | None) -> list[Node | None]:
    """The slot of "name" is the first one's."""
    owners: list[Node | None] = [second] * SLOTS
    owners[: SLOT + 1] = [first] * (SLOT + 1)
    return owners


@asynccontextmanager
async def opened(rig: Rig) -> AsyncIterator[Rig]:
    rig.nodes.start()
    try:
        await asyncio.wait_for(rig.nodes.wait_up(), 20)
        yield rig
    finally:
        await rig.nodes.stop()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with opened(Rig()) as rig:
        yield rig


async def test_a_command_goes_to_the_owner(rig: Rig) -> None:
    """A command goes to the node of its slot, and any reply of it is the answer."""
    for reply in (b"value", None, 5, StoreDown("late"), ReplyError("WRONGTYPE not that")):
        rig.ask()
        rig.links[A].reply(ASK, reply)
    assert rig.answers[:3] == [b"value", None, 5]
    assert [str(answer) for answer in rig.answers[3:]] == ["late", "WRONGTYPE not that"]
    assert not rig.links[B].sent


async def test_nodes_are_reached_with_the_credentials(rig: Rig) -> None:
    """Every node gets the user and password of the cluster's address."""
    assert rig.links.keys() == {A, B}
    for node, link in rig.links.items():
        assert link.address == StoreAddress("tcp", *node, username="app", password="hunter2")
        assert link.setup == [LOAD]


async def test_a_slot_that_moved(rig: Rig) -> None:
    """MOVED redirects this command and later ones to the new owner; the owners are read anew."""
    rig.ask()
    rig.owners = halves(B, A)
    rig.links[A].reply(ASK, ReplyError(f"MOVED {SLOT} {B[0]}:{B[1]}"))
    rig.links[B].reply(ASK, b"1")
    rig.ask()
    rig.links[B].reply(ASK, b"2")
    assert rig.answers == [b"1", b"2"]
    await eventually(lambda: rig.reads == 2, "the owners are read")


async def test_a_node_without_a_host(rig: Rig) -> None:
    """A redirection without a host means another port of the same host."""
    rig.ask()
    rig.links[A].reply(ASK, ReplyError(f"MOVED {SLOT} :7001"))
    await eventually(lambda: rig.links[(A[0], 7001)].sent != [], "the node is asked")


async def test_a_name_that_went_ahead(rig: Rig) -> None:
    """ASK redirects one command, preceded by ASKING; the next one goes to the owner."""
    rig.ask()
    rig.links[A].reply(ASK, ReplyError(f"ASK {SLOT} {B[0]}:{B[1]}"))
    rig.links[B].reply(ASKING, b"OK")
    rig.links[B].reply(ASK, b"there")
    rig.ask()
    rig.links[A].reply(ASK, b"here")
    assert rig.answers == [b"there", b"here"]


async def test_a_new_node_in_a_redirection(rig: Rig) -> None:
    """An unknown node is connected to, and the commands wait for that."""
    rig.connects = False
    rig.ask()
    rig.links[A].reply(ASK, ReplyError(f"MOVED {SLOT} {C[0]}:{C[1]}"))
    rig.ask()
    await asyncio.sleep(0.02)
    assert rig.answers == []
    rig.links[C].connect()
    await eventually(lambda: len(rig.links[C].sent) == 2, "both are asked")


async def test_a_new_node_that_cannot_be_reached() -> None:
    """The wait for a new node has the timeout of an answer."""
    async with opened(Rig(timeout_s=0.05)) as rig:
        rig.connects = False
        rig.ask()
        rig.links[A].reply(ASK, ReplyError(f"MOVED {SLOT} {C[0]}:{C[1]}"))
        await eventually(lambda: rig.answers != [], "it is answered")
        assert isinstance(rig.answers[0], StoreDown)


async def test_a_redirected_answer_that_is_late() -> None:
    """One timeout covers all redirections; what arrives after it is dropped."""
    async with opened(Rig(timeout_s=0.05)) as rig:
        rig.ask()
        rig.links[A].reply(ASK, ReplyError(f"MOVED {SLOT} {B[0]}:{B[1]}"))
        await eventually(lambda: rig.answers != [], "it is answered")
        rig.links[B].reply(ASK, b"late")
        (answer,) = rig.answers
        assert str(answer) == "the store did not answer within 0.05 s"


async def test_nodes_that_name_one_another(rig: Rig) -> None:
    """Redirections in a circle end with an error."""
    rig.ask()
    for hop in range(6):
        here, there = (A, B) if hop % 2 == 0 else (B, A)
        rig.links[here].reply(ASK, ReplyError(f"MOVED {SLOT} {there[0]}:{there[1]}"))
    assert "redirect to one another" in str(rig.answers[0])


async def test_a_missing_script(rig: Rig) -> None:
    """A node that lost the scripts gets them once, and the command again, ASKING included."""
    rig.ask()
    rig.links[A].reply(ASK, ReplyError(f"ASK {SLOT} {B[0]}:{B[1]}"))
    rig.links[B].reply(ASKING, b"OK")
    rig.links[B].reply(ASK, ReplyError("NOSCRIPT No matching script"))
    for encoded, reply in ((LOAD, b"sha"), (ASKING, b"OK"), (ASK, ReplyError("NOSCRIPT again"))):
        rig.links[B].reply(encoded, reply)
    assert [str(answer) for answer in rig.answers] == ["NOSCRIPT again"]


async def test_a_cluster_that_is_down(rig: Rig) -> None:
    """CLUSTERDOWN is the answer, and the owners are read anew."""
    rig.ask()
    rig.links[A].reply(ASK, ReplyError("CLUSTERDOWN The cluster is down"))
    assert str(rig.answers[0]) == "CLUSTERDOWN The cluster is down"
    await eventually(lambda: rig.reads == 2, "the owners are read")


async def test_a_lost_node_costs_its_own_slots(rig: Rig) -> None:
    """A lost node's slots are answered at once, others continue; recovery of all is reported."""
    rig.links[B].reconnect("reset")
    rig.ask()
    rig.nodes.send_to(SLOTS - 1, ASK, rig.answers.append)
    assert [str(answer) for answer in rig.answers] == ["reset"]
    rig.links[A].reply(ASK, b"value")
    assert (rig.nodes.is_up, rig.changes) == (False, ["up", "down: reset"])
    assert str(rig.nodes.last_error) == "reset"
    rig.links[B].connect()
    assert (rig.nodes.is_up, rig.changes) == (True, ["up", "down: reset", "up"])


async def test_owners_are_read_until_a_node_is_replaced(rig: Rig) -> None:
    """While a node is down the owners are read repeatedly, until its successor takes over."""
    before = rig.reads
    rig.links[A].reconnect("killed")
    await eventually(lambda: rig.reads >= before + 2, "the owners are read more than once")
    rig.owners = halves(C, B)
    await eventually(lambda: rig.nodes.is_up, "the successor is up")
    rig.ask()
    rig.links[C].reply(ASK, b"value")
    assert rig.answers == [b"value"]


async def test_a_node_that_owns_nothing_is_left(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link to a node without slots is stopped."""
    monkeypatch.setattr(module, "_REFRESH_S", 0.0)
    rig.owners = halves(B, B)
    rig.links[A].reconnect("demoted")
    await eventually(lambda: rig.links[A].stopped, "its link is stopped")
    assert rig.nodes.is_up


async def test_a_slot_without_an_owner() -> None:
    """Its commands are answered at once, and the rest of the cluster works."""
    rig = Rig()
    rig.owners = halves(None, B)
    async with opened(rig):
        rig.ask()
        assert "slot" in str(rig.answers[0])
        rig.nodes.send_to(SLOTS - 1, ASK, rig.answers.append)
        rig.links[B].reply(ASK, b"value")
        rig.owners = halves(A, B)
        await eventually(lambda: A in rig.links and rig.links[A].is_up, "its owner is found soon")
        rig.ask()
        rig.links[A].reply(ASK, b"value")


async def test_owners_that_cannot_be_read() -> None:
    """A cluster that is unavailable at the start is used once it is available."""
    rig = Rig()
    rig.owners = StoreDown("nobody answers")
    rig.nodes.start()
    rig.nodes.start()
    try:
        await eventually(lambda: rig.reads >= 2, "it is tried again")
        rig.ask()
        assert isinstance(rig.answers[0], StoreDown)
        assert (rig.nodes.is_up, str(rig.nodes.last_error)) == (False, "nobody answers")
        rig.owners = halves(A, B)
        await asyncio.wait_for(rig.nodes.wait_up(), 20)
    finally:
        await rig.nodes.stop()
        await rig.nodes.stop()
    assert all(link.stopped for link in rig.links.values())


async def test_a_command_under_way_at_the_end() -> None:
    """A command that waits for a new node at the close ends with an error, without connecting."""
    async with opened(Rig()) as rig:
        rig.connects = False
        rig.ask()
        rig.links[A].reply(ASK, ReplyError(f"MOVED {SLOT} {C[0]}:{C[1]}"))
        del rig.links[C]
    await eventually(lambda: rig.answers != [], "it is answered")
    assert str(rig.answers[0]) == "the gateway closed the connection"
    assert C not in rig.links


async def test_giving_up(rig: Rig) -> None:
    """`reconnect` is of one slot's owner, or of all nodes."""
    rig.nodes.reconnect("out of memory", SLOT)
    assert (rig.links[A].is_up, rig.links[B].is_up) == (False, True)
    rig.links[A].connect()
    rig.nodes.reconnect("all of it")
    assert (rig.links[A].is_up, rig.links[B].is_up) == (False, False)


async def test_a_trial_is_of_the_nodes_own_slots() -> None:
    """A node's probe uses a name in its own slots, also after slots have moved."""
    rig = Rig(probe=lambda tag: (command("TRY", tag),))
    async with opened(rig):
        for owners in (halves(A, B), halves(B, A)):
            before, rig.owners = rig.reads, owners
            rig.ask()
            owner = next(node for node in (A, B) if rig.links[node].sent)
            rig.links[owner].reply(ASK, ReplyError("CLUSTERDOWN The cluster is down"))
            await eventually(lambda before=before: rig.reads > before, "the owners are read")
            await asyncio.sleep(0)
            for node in (A, B):
                (tried,) = rig.links[node].setup
                tag = tried.split(b"\r\n")[4]
                assert owners[key_slot(tag)] == node


@pytest.mark.parametrize("code", ["MOVED", "ASK"])
@pytest.mark.parametrize("to", ["", "x", "10.0.0.9:", "10.0.0.9:0", "10.0.0.9:65536", ":x", "a:²"])
async def test_a_redirection_to_nowhere(rig: Rig, code: str, to: str) -> None:
    """A redirection without a valid node is returned as an error reply."""
    rig.ask()
    rig.links[A].reply(ASK, ReplyError(f"{code} {SLOT} {to}"))
    assert [str(answer) for answer in rig.answers] == [f"{code} {SLOT} {to}"]
    assert rig.links.keys() == {A, B}


async def test_more_nodes_than_there_can_be(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of connected nodes is bounded."""
    monkeypatch.setattr(module, "MOST_MASTERS", 3)
    for number in range(5):
        rig.ask()
        rig.links[A].reply(ASK, ReplyError(f"ASK {SLOT} 10.0.1.{number}:7000"))
    assert len(rig.links) == 3
    assert [str(answer) for answer in rig.answers] == ["the cluster names more than 3 nodes"] * 4
