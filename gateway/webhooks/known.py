"""The integrations that capture knows while the store is unavailable.

While the store is available it is asked for each webhook, so that a change is in effect at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, Protocol

from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.domain.webhooks.events import Integration
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.records import read_integration

log = logging.getLogger("gateway")

#: How often all integrations are loaded: what changed in the last seconds before an outage may not
#: be known in it.
LOAD_S: Final = 5.0
#: After an error: the store may be there for a short time only.
_AGAIN_S: Final = 1.0


class RecordStore(Protocol):
    """What `stores.webhooks.resources` keeps."""

    async def integration_records(self) -> Mapping[str, bytes]: ...


class KnownIntegrations:
    """All integrations, by capture address, as they were loaded last."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._records: dict[str, bytes] = {}
        self._read: dict[str, Integration] = {}
        self._captures: dict[str, Integration] = {}
        self._throttle = LogThrottle()

    def captures_to(self, capture: str) -> Integration | None:
        """None: none is known with this capture address."""
        return self._captures.get(capture)

    async def run(self) -> None:
        """Load them again and again, until cancelled."""
        while True:
            wait_s = LOAD_S
            try:
                await self.load()
            except StoreDown as error:
                wait_s = _AGAIN_S
                if self._throttle.suppressed("load", time.monotonic()) is not None:
                    log.warning("integrations cannot be loaded: %s", error)
            await asyncio.sleep(wait_s)

    async def load(self) -> None:
        """Load all, and read those that changed. Raises StoreDown."""
        records = dict(await self._store.integration_records())
        if records == self._records:
            return
        read: dict[str, Integration] = {}
        for integration, content in records.items():
            known = self._read.get(integration)
            if known is not None and self._records.get(integration) == content:
                read[integration] = known
                continue
            try:
                read[integration] = read_integration(integration, content)
            except CorruptRecord:
                continue
        self._records, self._read = records, read
        self._captures = {each.capture: each for each in read.values() if each.capture}
