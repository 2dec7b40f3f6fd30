"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.redis_server import RedisServer

pytest_plugins = [
    "tests.kit.needs",
    "tests.kit.tiers",
    "tests.kit.order",
    "tests.kit.repeat",
]


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Leave the process's logging as it was: commands configure it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Collect no garbage while tests are collected: everything that is made then is kept."""
    if isinstance(collector, pytest.Session):
        gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests themselves, of 300 MB, out of later garbage collections, which are fewer.

    A full one takes half a second where thousands of tests have run, and would come every 50 tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)
    gc.enable()


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    server.is_shared = True
    yield server
    server.is_shared = False
    server.stop()


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> RedisServer:
    """A real Redis, empty at the start of each test. Shared: do not kill or pause this one."""
    with _redis_server.client() as client:
        client.flushall()
    return _redis_server


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays given to `asyncio.sleep`, which take no time."""
    found: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        found.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return found


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """A folder for sockets, whose names have 103 bytes at most; `tmp_path` may be longer."""
    with tempfile.TemporaryDirectory(prefix="gw-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def short_path(short_folder: Path) -> Path:
    """One such folder per test."""
    return Path(tempfile.mkdtemp(dir=short_folder))
