"""The files of TLS with upstreams, reloaded when they change.

They are the CA certificates that verify upstreams, and the client certificates with which the
gateway identifies itself. `file_watch` watches the files that the loaded policy names. If one
cannot be used, that is logged, and the previous ones stay in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.domain.policy import Policy
from gateway.domain.upstreams import Trust
from gateway.files import reason_of
from gateway.proxy.dial import open_context
from gateway.runtime.file_watch import FileWatch, signature

log = logging.getLogger("gateway")

INTERVAL_S: Final = 1.0


class Authorities:
    """Watches the files of TLS with upstreams.

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
            lambda: list(filter(None, map(_fault, sorted(self._trusts(), key=str)))),
            self._take,
            interval_s=interval_s,
            known=signature(self._named()),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def _trusts(self) -> set[Trust]:
        trusts = {upstream.trust for upstream in self._policy().upstreams.values()}
        return {trust for trust in trusts if trust.files}

    def _named(self) -> list[str]:
        return sorted({file for trust in self._trusts() for file in trust.files})

    def _take(self, faults: list[str], _asked: bool) -> None:
        if faults:
            log.error(
                "upstream certificates reload failed; keeping the previous ones: %s",
                "; ".join(faults),
            )
        elif named := self._named():
            self._use(self._policy())
            log.info("upstream certificates loaded: %s", ", ".join(named))


def _fault(trust: Trust) -> str | None:
    """What is wrong with an upstream's files; None: nothing."""
    try:
        open_context(trust)
    except OSError as error:
        return f"{' and '.join(trust.files)}: {reason_of(error)}"
    return None
