"""The server certificate, reloaded when its files change.

`file_watch` watches both files. A new pair is first loaded into a context of its own: one that does
not fit or cannot be read is reported, and the previous certificate stays in use.

Connections that are open keep the certificate they began with.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from gateway import tasks
from gateway.domain.policy import Tls
from gateway.files import check_regular
from gateway.runtime.file_watch import FileWatch, signature
from gateway.runtime.settings import CannotStart

log = logging.getLogger("gateway")

INTERVAL_S: Final = 1.0


class CertificateFault(Exception):
    """A certificate and its key cannot be used; the text names both files and says why."""


class Certificates:
    """Owns the context of the clients' TLS. Raises CertificateFault where there is none to begin.

    context:  for servers to be made with; the same object for ever
    on_fault: called in the loop's thread with what is wrong, once per change; what was loaded
              before stays in use
    """

    def __init__(
        self,
        tls: Tls,
        *,
        on_fault: Callable[[CertificateFault], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._tls = tls
        self._on_fault = on_fault
        files = (tls.certificate, tls.key)
        self._files = FileWatch(
            lambda: signature(files),
            lambda: _try_out(tls),
            self._take,
            interval_s=interval_s,
            known=signature(files),
        )
        self.context = build_context(tls)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def reload_now(self) -> None:
        """Load the files at once, changed or not (SIGHUP); `run` does it."""
        self._files.read_now()

    def _take(self, fault: CertificateFault | None, _asked: bool) -> None:
        if fault is None:
            fault = self._load()
        if fault is not None:
            self._on_fault(fault)

    def _load(self) -> CertificateFault | None:
        """Load into the context in use: in the loop's thread, whose handshakes read it.

        OpenSSL only loads files, so that they are read once more after the trial. Should they have
        changed in between, the context may be without a key; the next looks load again.
        """
        try:
            _load_pair(self.context, self._tls)
        except CertificateFault as fault:
            self._files.read_again()
            return fault
        return None


def keep_certificates(stack: AsyncExitStack, tls: Tls | None, setting: str) -> Certificates | None:
    """Those of a policy setting, "tls" or "admin_tls", reloaded until the stack is closed.

    None: the setting is absent. Raises CannotStart where they cannot be loaded.
    """
    if tls is None:
        return None

    def report(fault: CertificateFault) -> None:
        log.error("%s: reload failed; keeping the previous certificate: %s", setting, fault)

    try:
        certificates = Certificates(tls, on_fault=report)
    except CertificateFault as fault:
        raise CannotStart(f"{setting}: {fault}") from fault
    tasks.keep_running(stack, certificates.run(), f"certificates of {setting}")
    return certificates


def build_context(tls: Tls) -> ssl.SSLContext:
    """A context for the server's side. Raises CertificateFault.

    Ciphers and curves are Python's and OpenSSL's choice, which is renewed with them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Compression beside a secret tells its length apart (CRIME); a client that renegotiates over
    # and over costs many times what it spends. RFC 9325, 3.3 and 3.4.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, tls)
    return context


def _try_out(tls: Tls) -> CertificateFault | None:
    try:
        build_context(tls)
    except CertificateFault as fault:
        return fault
    return None


def _load_pair(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        for file in (tls.certificate, tls.key):
            check_regular(file)
        # A key under a password fails by the empty one; without it, OpenSSL asks the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except OSError as exc:
        why = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        raise CertificateFault(
            f"the certificate {tls.certificate} and the key {tls.key} cannot be used: {why or exc}"
        ) from exc
