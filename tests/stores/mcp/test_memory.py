"""Reported connections in process."""

from __future__ import annotations

import pytest

from gateway.stores.mcp.memory import MemoryConnectionStore
from tests.suites.connections import ConnectionStoreSuite


class TestMemory(ConnectionStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryConnectionStore()
