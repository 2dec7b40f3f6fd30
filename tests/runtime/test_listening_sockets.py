"""The sources of the sockets of a gateway that starts."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.runtime import listening_sockets as module
from gateway.runtime.listening_sockets import ListeningSockets, inheritable, open_sockets
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.sockets import InheritedSockets, bind, close_all, distinct
from gateway.runtime.take_over import take_over_path
from gateway.runtime.take_over_server import TakeOverServer
from tests.kit.eventually import eventually
from tests.kit.ports import free_port


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        tmp_path,
        listen=("127.0.0.1", free_port()),
        admin=("127.0.0.1", free_port()),
        data=tmp_path,
        take_over=True,
    )


async def running(stack: AsyncExitStack, settings: Settings, workers: int) -> ListeningSockets:
    """The sockets of a gateway that can be taken over."""
    opened = await stack.enter_async_context(open_sockets(settings, workers, InheritedSockets()))
    for one in (*distinct(opened.workers), *opened.admin):
        one.listen()
    place = take_over_path(settings.data, *settings.listen)
    server = TakeOverServer(place, inheritable(opened, settings), lambda _: None)
    server.open()
    stack.push_async_callback(server.close)
    return opened


def names(sockets: Sequence[socket.socket]) -> list[int]:
    """The identities of the sockets, whatever their descriptors."""
    return [os.fstat(one.fileno()).st_ino for one in sockets]


async def test_new_ones(stack: AsyncExitStack, settings: Settings) -> None:
    """Without inherited ones they are bound: a set per worker and one for the admin listener."""
    opened = await stack.enter_async_context(open_sockets(settings, 2, InheritedSockets()))
    assert opened.predecessor is None
    assert opened.address == settings.listen
    assert [len(each) for each in opened.workers] == [1, 1]
    assert opened.admin[0].getsockname() == settings.admin
    await stack.aclose()
    assert opened.admin[0].fileno() == opened.workers[1][0].fileno() == -1


async def test_those_of_a_predecessor(stack: AsyncExitStack, settings: Settings) -> None:
    """All are used, of clients and of the admin listener, whatever the number of workers."""
    before = await running(stack, settings, 3)
    opened = await stack.enter_async_context(open_sockets(settings, 2, InheritedSockets()))
    assert opened.predecessor is not None
    assert sorted(names(distinct(opened.workers))) == sorted(names(distinct(before.workers)))
    assert names(opened.admin) == names(before.admin)


async def test_another_address_of_the_admin_side(
    stack: AsyncExitStack, settings: Settings, tmp_path: Path
) -> None:
    """It is bound newly; and no socket without a process that accepts stays open."""
    before = await running(stack, settings, 1)
    after = Settings(
        tmp_path, settings.listen, ("127.0.0.1", free_port()), data=tmp_path, take_over=True
    )
    opened = await stack.enter_async_context(open_sockets(after, 1, InheritedSockets()))
    assert opened.admin[0].getsockname() == after.admin
    assert opened.predecessor is not None
    assert [one.fileno() for one in opened.predecessor.sockets.admin] == [-1]
    assert before.admin[0].fileno() != -1


async def test_those_of_systemd(stack: AsyncExitStack, settings: Settings) -> None:
    """They are used as they are: all workers share one, and no other is bound."""
    given = InheritedSockets(*(bind("127.0.0.1", 0, 1)[0] for _ in range(2)))
    opened = await stack.enter_async_context(open_sockets(settings, 2, given))
    assert opened.workers == (given.listen, given.listen)
    assert opened.address == given.listen[0].getsockname()
    assert opened.admin == given.admin


async def test_a_predecessor_before_systemd(stack: AsyncExitStack, settings: Settings) -> None:
    """Both have the same sockets: the predecessor's are used."""
    before = await running(stack, settings, 1)
    given = InheritedSockets(tuple(one.dup() for one in before.workers[0]))
    opened = await stack.enter_async_context(open_sockets(settings, 1, given))
    assert opened.predecessor is not None
    assert opened.workers == (opened.predecessor.sockets.listen,)
    assert given.listen[0].fileno() == -1


async def test_a_predecessor_that_drains(stack: AsyncExitStack, settings: Settings) -> None:
    """It gives the admin listener's socket; those for clients are closed, and bound newly."""
    before = await running(stack, settings, 1)
    close_all(before.workers)
    opened = await stack.enter_async_context(open_sockets(settings, 2, InheritedSockets()))
    assert opened.predecessor is not None
    assert opened.address == settings.listen
    assert len(distinct(opened.workers)) == 2
    assert names(opened.admin) == names(before.admin)


async def test_systemds_beside_a_predecessor_that_drains(
    stack: AsyncExitStack, settings: Settings
) -> None:
    """systemd's are used, as at any start, and the predecessor's admin socket if needed."""
    before = await running(stack, settings, 1)
    given = InheritedSockets(tuple(one.dup() for one in before.workers[0]))
    close_all(before.workers)
    opened = await stack.enter_async_context(open_sockets(settings, 2, given))
    assert opened.workers == (given.listen, given.listen)
    assert names(opened.admin) == names(before.admin)


async def test_a_port_of_another_gateway(stack: AsyncExitStack, settings: Settings) -> None:
    """Without --take-over, the error suggests it."""
    await running(stack, settings, 1)
    plain = Settings(settings.policies, settings.listen, data=settings.data)
    with pytest.raises(
        CannotStart, match=rf"in use by a running gateway .pid {os.getpid()}.; to replace it"
    ):
        await stack.enter_async_context(open_sockets(plain, 1, InheritedSockets()))


async def test_a_port_in_use(
    stack: AsyncExitStack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is not freed in time, the fault names possible causes."""
    monkeypatch.setattr(module, "_FREE_S", 0.1)
    (taken,) = bind(*settings.listen, 1)
    taken[0].listen()
    with pytest.raises(CannotStart, match="in use by another program, not by a gateway"):
        await stack.enter_async_context(open_sockets(settings, 1, InheritedSockets()))
    with pytest.raises(CannotStart, match="to replace a running gateway, add --take-over"):
        await stack.enter_async_context(
            open_sockets(replace(settings, take_over=False), 1, InheritedSockets())
        )
    close_all([taken])


async def test_a_port_that_is_about_to_be_free(stack: AsyncExitStack, settings: Settings) -> None:
    """The workers of a killed predecessor free it within a moment, which the start waits for."""
    (taken,) = bind(*settings.listen, 1)
    taken[0].listen()
    opening = asyncio.gather(
        stack.enter_async_context(open_sockets(settings, 1, InheritedSockets()))
    )
    await eventually(lambda: not opening.done(), "it waits")
    close_all([taken])
    (opened,) = await opening
    assert opened.address == settings.listen


async def test_an_admin_port_that_is_about_to_be_free(
    stack: AsyncExitStack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A predecessor at the end of its drain closes it within a moment."""
    assert settings.admin is not None
    (taken,) = bind(*settings.admin, 1)
    taken[0].listen()
    tried = []

    def noted(host: str, port: int, workers: int) -> object:
        tried.append((host, port))
        return bind(host, port, workers)

    monkeypatch.setattr(module, "bind", noted)
    opening = asyncio.gather(
        stack.enter_async_context(open_sockets(settings, 1, InheritedSockets()))
    )
    await eventually(lambda: tried.count(settings.admin) > 1, "it tries again")
    close_all([taken])
    (opened,) = await opening
    assert opened.admin[0].getsockname() == settings.admin


async def test_an_admin_port_in_use(
    stack: AsyncExitStack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the option to change, and no socket stays open."""
    monkeypatch.setattr(module, "_FREE_S", 0.1)
    assert settings.admin is not None
    (taken,) = bind(*settings.admin, 1)
    taken[0].listen()
    with pytest.raises(CannotStart, match=r"--admin 127\.0\.0\.1:.*another with --admin"):
        await stack.enter_async_context(open_sockets(settings, 1, InheritedSockets()))
    close_all([taken])
    close_all(bind(*settings.listen, 1))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
async def test_one_port_for_both_sides(
    stack: AsyncExitStack, settings: Settings, host: str
) -> None:
    """The same port for clients and the admin listener is refused, however the host is written."""
    both = replace(settings, admin=(host, settings.listen[1]))
    with pytest.raises(CannotStart, match=r"--admin .*it is the address of --listen"):
        await stack.enter_async_context(open_sockets(both, 1, InheritedSockets()))
