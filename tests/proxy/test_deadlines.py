"""The periodic check of all connections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.proxy import deadlines
from gateway.proxy.deadlines import watch_deadlines
from tests.kit.eventually import eventually


class Connections(list[Any]):
    """The connections of a worker."""

    def check(self) -> None: ...


class Connection:
    """A connection that is checked. error: what the check raises"""

    def __init__(self, error: Exception | None = None) -> None:
        self.looks = self.failures = 0
        self._error = error

    def check_deadline(self, _now: float) -> None:
        self.looks += 1
        if self._error is not None:
            raise self._error

    def failed(self) -> None:
        self.failures += 1


async def test_a_check_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It affects only its own connection; the others keep their deadlines."""
    monkeypatch.setattr(deadlines, "TICK_S", 0.001)
    bad, good = Connection(RuntimeError("broken")), Connection()
    context = SimpleNamespace(
        gate=SimpleNamespace(epoch=0),
        connections=Connections((bad, good)),
        pools=SimpleNamespace(close_idle=lambda _until: None),
    )
    watching = asyncio.ensure_future(watch_deadlines(cast("Any", context)))
    await eventually(lambda: good.looks >= 3, "the others are checked repeatedly")
    watching.cancel()
    assert bad.failures >= 2
    assert good.failures == 0
