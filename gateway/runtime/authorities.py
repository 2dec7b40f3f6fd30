"""The CA certificates that verify upstreams, reloaded when their files change.

`file_watch` watches the files that the loaded policy names. If one cannot be read, that is logged,
and the previous certificates stay in use.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Final

from gateway.domain.policy import Policy
from gateway.files import check_regular
from gateway.runtime.file_watch import FileWatch, signature

log = logging.getLogger("gateway")

INTERVAL_S: Final = 1.0


class Authorities:
    """Watches the CA files of upstreams.

    policy: returns the loaded policy
    use:    makes the upstreams of a policy read their files again
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        use: Callable[[Policy], None],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._policy = policy
        self._use = use
        self._files = FileWatch(
            lambda: signature(self._named()),
            lambda: list(filter(None, map(_fault, self._named()))),
            self._take,
            interval_s=interval_s,
            known=signature(self._named()),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def _named(self) -> list[str]:
        upstreams = self._policy().upstreams.values()
        return sorted({upstream.ca for upstream in upstreams if upstream.ca is not None})

    def _take(self, faults: list[str], _asked: bool) -> None:
        if faults:
            log.error(
                "upstream CA reload failed; keeping the previous certificates: %s",
                "; ".join(faults),
            )
        elif named := self._named():
            self._use(self._policy())
            log.info("upstream CA certificates loaded: %s", ", ".join(named))


def _fault(file: str) -> str | None:
    """What is wrong with a CA file; None: nothing."""
    try:
        check_regular(file)
        ssl.create_default_context(cafile=file)
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        return f"{file}: {why or error}"
    return None
