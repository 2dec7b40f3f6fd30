"""Reads when the certificates of the loaded policy expire, for the metric.

They are those for clients, for the admin listener, and those with which the gateway identifies
itself to upstreams.

`file_watch` watches the files. A certificate that cannot be used with its key keeps its last value,
as the previous one stays in use.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Final

from gateway.domain.policy import Policy
from gateway.policies.tls import CertificateFault, load_pair, read_certificate
from gateway.runtime.file_watch import FileWatch, Signature, signature

INTERVAL_S: Final = 1.0

#: By setting and file: the end of the validity in Unix seconds; None: it cannot be read.
_Read = Mapping[tuple[str, str], int | None]


class Expiry:
    """Watches the certificates that a policy names.

    policy: returns the loaded policy
    report: called with when each expires, in Unix seconds, by setting and file: at the start, and
            when a file or the policy has changed
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        report: Callable[[Mapping[tuple[str, str], int]], None],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._policy = policy
        self._report = report
        self._last: dict[tuple[str, str], int] = {}
        self._files = FileWatch(self._look_at, self._read, self._take, interval_s=interval_s)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def _look_at(self) -> Signature:
        pairs = self._policy().certificates
        files = [file for _, pair in pairs for file in (pair.certificate, pair.key)]
        # The same files may be those of other settings.
        return (*signature(files), (repr(pairs), 0, 0, 0, 0))

    def _read(self) -> _Read:
        found: dict[tuple[str, str], int | None] = {}
        for setting, pair in self._policy().certificates:
            certificate = read_certificate(pair.certificate)
            try:
                load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
            except CertificateFault:
                certificate = None
            found[setting, pair.certificate] = None if certificate is None else certificate.ends_s
        return found

    def _take(self, read: _Read, _asked: bool) -> None:
        ends = {key: self._last.get(key) if end is None else end for key, end in read.items()}
        self._last = {key: end for key, end in ends.items() if end is not None}
        self._report(self._last)
