"""Fixtures for several modules of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.take_over import Scene


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A gateway that can be taken over."""
    scene = Scene(tmp_path)
    scene.server.open()
    yield scene
    await scene.server.close()
    scene.sockets.close()
