"""What the tests of the client library share."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from gateway_client import async_client, client, session

from tests.client.scripted import Scripted
from tests.client.shells import KEY, Clock, Open, Replaced, Shell, Tasks, Threads


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests, and no proxies."""
    for name in os.environ:
        if name.startswith("SERVICE_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _same_logger() -> Iterator[None]:
    """The level and handlers of the client's logger stay as they were."""
    logger = logging.getLogger("gateway_client")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clients' clock, which stands still. Waits take no time, and have no jitter."""
    made = Clock()
    times = Replaced(time, sleep=made.sleep, monotonic=made.monotonic)
    for module in (client, async_client):
        monkeypatch.setattr(module, "time", times)
    monkeypatch.setattr(async_client, "asyncio", Replaced(asyncio, sleep=made.sleep_async))
    monkeypatch.setattr(session, "random", Replaced(random, random=lambda: 0.0))
    return made


@pytest.fixture(params=[Threads, Tasks], ids=lambda kind: kind.name)
def open_shell(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a client, of either kind, of this server; it is closed at the end of the test."""
    with ExitStack() as stack:

        def open_shell(at: Scripted | str, **arguments: Any) -> Shell:
            url = at if isinstance(at, str) else at.url
            made: Shell = request.param(**{"api_key": KEY, "base_url": url, **arguments})
            stack.callback(made.close)
            return made

        yield open_shell
