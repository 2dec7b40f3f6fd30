"""What the tests of the client library share."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from gateway_client import async_client, client, session

from tests.client.scripted import Scripted
from tests.client.shells import KEY, Clock, Open, OpenBoth, Replaced, Shell, Tasks, Threads

TRUST = ssl.create_default_context()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests, and no proxies."""
    for name in list(os.environ):
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
    sleeping = Replaced(asyncio, sleep=made.sleep_async)
    monkeypatch.setattr(async_client, "asyncio", sleeping)
    monkeypatch.setattr(session, "random", Replaced(random, random=lambda: 0.0))
    return made


@pytest.fixture(params=[Threads, Tasks], ids=lambda kind: kind.name)
def open_shell(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a client, of either kind, of this server; it is closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda at, **arguments: _open(stack, request.param, at, arguments)


@pytest.fixture
def open_both() -> Iterator[OpenBoth]:
    """Opens a client of each kind, where the test of each would take long."""
    with ExitStack() as stack:
        yield lambda at, **arguments: (
            _open(stack, Threads, at, dict(arguments)),
            _open(stack, Tasks, at, dict(arguments)),
        )


def _open(
    stack: ExitStack, kind: type[Shell], at: Scripted | str, arguments: dict[str, Any]
) -> Shell:
    # A context of its own would take most of the time of a test.
    http = {"verify": TRUST, **arguments.pop("http", {})}
    url = at if isinstance(at, str) else at.url
    made = kind(**{"api_key": KEY, "base_url": url, "http": http, **arguments})
    stack.callback(made.close)
    return made
