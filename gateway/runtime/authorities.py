"""The authorities that upstreams are verified by, taken up anew when their files change.

The files that the policy in force names are watched as `runtime.files` does it. One that cannot be
read is reported, and what it said before stays in use.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Final

from gateway.domain.policy import Policy
from gateway.files import check_regular
from gateway.runtime.files import FileWatch, signature

log = logging.getLogger("gateway")

INTERVAL_S: Final = 1.0


class Authorities:
    """Watches the files of authorities.

    policy: the one in force
    use:    has its upstreams read their authorities anew
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
            log.error("authorities refused, those read before stay: %s", "; ".join(faults))
        elif named := self._named():
            self._use(self._policy())
            log.info("authorities taken up: %s", ", ".join(named))


def _fault(file: str) -> str | None:
    """What is wrong with a file of authorities; None: nothing."""
    try:
        check_regular(file)
        ssl.create_default_context(cafile=file)
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        return f"{file}: {why or error}"
    return None
