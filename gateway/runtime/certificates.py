"""The server certificate, reloaded when its files change.

`file_watch` watches both files. A new pair is first loaded into a separate context: if the two do
not match or cannot be read, that is reported, and the previous certificate stays in use.

Open connections keep the certificate they began with.
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
    """Owns the server-side TLS context. Raises CertificateFault if the first load fails.

    context:  for creating servers; always the same object
    on_fault: called in the loop's thread with what is wrong, once per change; the previous
              certificate stays in use
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
        """Make `run` load the files now, changed or not (SIGHUP)."""
        self._files.read_now()

    def _take(self, fault: CertificateFault | None, _asked: bool) -> None:
        if fault is None:
            fault = self._load()
        if fault is not None:
            self._on_fault(fault)

    def _load(self) -> CertificateFault | None:
        """Load into the context in use; in the loop's thread, as handshakes there read it.

        OpenSSL only loads from files, so they are read again after the trial. If they changed in
        between, the context may lack a key; the next checks load them again.
        """
        try:
            _load_pair(self.context, self._tls)
        except CertificateFault as fault:
            self._files.read_again()
            return fault
        return None


def keep_certificates(stack: AsyncExitStack, tls: Tls | None, setting: str) -> Certificates | None:
    """The certificates of a policy setting, reloaded until the stack is closed.

    setting: "tls" or "admin_tls". None: the setting is absent. Raises CannotStart if the
    certificate cannot be loaded.
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
    """A server-side context. Raises CertificateFault.

    Ciphers and curves are the defaults of Python and OpenSSL, which are updated with them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Compression reveals secrets by the length of the result (CRIME); renegotiation costs the
    # server many times what it costs the client. RFC 9325, 3.3 and 3.4.
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
        # An encrypted key fails with the empty password; without one, OpenSSL asks the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except OSError as exc:
        why = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        raise CertificateFault(
            f"the certificate {tls.certificate} and the key {tls.key} cannot be used: {why or exc}"
        ) from exc
