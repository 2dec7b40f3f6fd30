"""Fixtures that every test may use."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.kit.redis_server import RedisServer

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

pytest_plugins = ["tests.kit.needs"]


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


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """A folder for sockets, whose names have 103 bytes at most; `tmp_path` may be longer."""
    with tempfile.TemporaryDirectory(prefix="gw-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def short_path(short_folder: Path) -> Path:
    """One of a test's own."""
    return Path(tempfile.mkdtemp(dir=short_folder))
