"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.kit.redis_server import RedisServer

# The duration of an example depends more on the machine than on the code.
hypothesis.settings.register_profile("tests", deadline=None)
# For --hypothesis-profile: where coverage is measured, which makes each example slower. The lines
# that are reached need no more, and what only many examples find is looked for without coverage.
hypothesis.settings.register_profile("covered", deadline=None, max_examples=25)
hypothesis.settings.load_profile("tests")

pytest_plugins = ["tests.kit.needs"]

#: Folders whose files take long, the longest first.
SLOW = (
    "hostile",
    "image",
    "judges",
    "end_to_end",
    "browser",
    "loadtests",
    "helm",
    "admin",
    "stores",
)


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Leave the process's logging as it was: commands configure it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move files that take long to the front, in the order that they were given otherwise.

    At the end only short files are left, so that all processes finish at about the same time.
    """
    last = len(SLOW)
    ranks = {name: rank for rank, name in enumerate(SLOW)}
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        parts = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ("",)
        return ranks.get(parts[0], last)

    items.sort(key=rank)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Collect no garbage while tests are collected: everything that is made then is kept."""
    if isinstance(collector, pytest.Session):
        gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests themselves, of 300 MB, out of each later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
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
