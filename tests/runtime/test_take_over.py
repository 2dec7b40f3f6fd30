"""The messages of a take-over, with another version or another user at the other end."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from gateway.runtime import take_over
from gateway.runtime.predecessor import Predecessor
from gateway.runtime.sockets import InheritedSockets, bind, close_all, distinct
from gateway.runtime.take_over import TakeOverFailed, take_over_path
from gateway.runtime.take_over_server import TakeOverServer
from tests.kit.take_over import Scene


async def test_many_sockets(tmp_path: Path) -> None:
    """More than one message of the kernel can carry."""
    sockets = distinct(bind("127.0.0.1", 0, 300))
    server = TakeOverServer(tmp_path / "take-over.sock", InheritedSockets(sockets), lambda _: None)
    server.open()
    predecessor = await asyncio.to_thread(Predecessor.find, tmp_path / "take-over.sock")
    assert predecessor is not None
    assert len(predecessor.sockets.listen) == 300
    close_all([sockets, predecessor.sockets.listen])
    predecessor.close()
    await server.close()


async def test_members_of_a_later_version(scene: Scene) -> None:
    """Unknown members are ignored, both ways."""
    assert "admin" in await scene.answer_to({"version": 1, "since": 2})


async def test_only_the_same_user(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the same user can open the file, and both ends check the peer's user."""
    found = scene.path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    monkeypatch.setattr(take_over.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TakeOverFailed, match="found a process of user"):
        await asyncio.to_thread(Predecessor.find, scene.path)
    assert await scene.answer_to({"version": 1}) == {}


def test_the_path_names_the_address(tmp_path: Path) -> None:
    """Gateways at several addresses may share a folder, whatever their hosts are called."""
    names = [take_over_path(tmp_path, host, 80).name for host in ("127.0.0.1", "::1", "a/../b")]
    assert names == [
        "take-over-127.0.0.1:80.sock",
        "take-over-[::1]:80.sock",
        "take-over-a%2F..%2Fb:80.sock",
    ]
