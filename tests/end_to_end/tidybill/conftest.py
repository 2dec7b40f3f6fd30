"""One Tidybill for the tests of a module: each has keys, accounts and addresses of its own.

Not one for all modules: while tests without an event loop run between two of them, the services
would not answer health checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.end_to_end.test_observed import counted
from tests.kit.eventually import eventually
from tests.kit.tidybill import Tidybill, serve_tidybill
from tests.kit.upstream import echo


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def _tidybill(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tidybill]:
    async with serve_tidybill(tmp_path_factory.mktemp("tidybill")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def tidybill(_tidybill: Tidybill) -> Tidybill:
    """The module's, whose services echo, and of which none is unhealthy or ejected."""
    for service in _tidybill.services.values():
        service.answer = echo

    async def is_healthy() -> bool:
        name = "gateway_upstream_healthy"
        return await counted(_tidybill.gateway, name) == len(_tidybill.services)

    await eventually(is_healthy, "all servers are healthy")
    return _tidybill
