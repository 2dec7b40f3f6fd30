"""The authorities that verify receivers of webhooks, reloaded when their file or setting changes.

`file_watch` watches the file that the loaded policy names. If it cannot be used, that is logged,
and the previous authorities stay in use.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Final

from gateway.files import check_regular, reason_of
from gateway.runtime.file_watch import FileWatch, Signature, signature
from gateway.runtime.settings import CannotStart

log = logging.getLogger("gateway")

INTERVAL_S: Final = 1.0

#: The setting, and what is trusted by it; or what is wrong with its file.
_Built = tuple[str | None, ssl.SSLContext] | str


class ReceiverTrust:
    """Owns the TLS context of deliveries. Raises CannotStart if the first file cannot be used.

    ca:      returns the setting `webhooks.ca` of the loaded policy; None: the system's authorities
    context: for attempts that begin now
    """

    def __init__(self, ca: Callable[[], str | None], *, interval_s: float = INTERVAL_S) -> None:
        self._files = FileWatch(
            lambda: _look_at(ca()),
            lambda: _built(ca()),
            self._take,
            interval_s=interval_s,
            known=_look_at(ca()),
        )
        built = _built(ca())
        if isinstance(built, str):
            raise CannotStart(f"webhooks.ca: {built}")
        _, self.context = built

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def _take(self, built: _Built, _asked: bool) -> None:
        if isinstance(built, str):
            log.error("webhooks.ca: reload failed; keeping the previous authorities: %s", built)
            return
        ca, self.context = built
        log.info("webhooks.ca: authorities loaded: %s", ca or "those of the system")


def _look_at(ca: str | None) -> Signature:
    """The signature of the file, and of the setting, which may change as well."""
    return (*signature(() if ca is None else (ca,)), (ca or "", 0, 0, 0, 0))


def _built(ca: str | None) -> _Built:
    context = ssl.create_default_context()
    if ca is not None:
        try:
            check_regular(ca)
            context.load_verify_locations(ca)
        except OSError as error:
            return f"{ca}: {reason_of(error)}"
    return ca, context
