"""A worker's listener for plain HTTP, which redirects to https.

Each worker binds its own sockets at the address (SO_REUSEPORT), also while a predecessor still has
it: nothing is passed on in a take-over.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.proxy.context import Context
from gateway.proxy.redirect import RedirectConnection
from gateway.runtime.listen import Listener
from gateway.runtime.settings import CannotStart, Settings, naming
from gateway.runtime.sockets import bind, bind_shared, close_all

OPTION: Final = "--listen-http"


class RedirectListener(Listener):
    """Accepts connections that are redirected. https_port: of the listener with TLS"""

    def __init__(self, context: Context, address: tuple[str, int], https_port: int) -> None:
        """Raises CannotStart."""
        with naming(OPTION, address):
            sockets = bind_shared(*address)
        super().__init__(context, None, [sockets], 0)
        self._https_port = https_port

    def _protocol(self) -> asyncio.BaseProtocol:
        return RedirectConnection(self._context, self._https_port)

    async def close(self) -> None:
        """Stop accepting. Accepted connections end with the worker's others."""
        await self._close()


def check_redirect(settings: Settings, *, has_tls: bool) -> None:
    """Check, before workers start, that the address can be bound. Raises CannotStart."""
    address = settings.listen_http
    if address is None:
        return
    if not has_tls:
        raise CannotStart(f"{OPTION}: the policies have no tls, which requests are redirected to")
    if not settings.take_over:
        with naming(OPTION, address):
            close_all(bind(*address, 1))
