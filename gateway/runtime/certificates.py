"""The server certificates, reloaded when their files or their setting change.

`file_watch` watches all files. They are loaded into new contexts, in a thread; connections that
begin later use these. If a certificate and its key do not match or cannot be read, that is
reported, and the previous certificates stay in use, all of them.

Open connections keep the certificate they began with.
"""

from __future__ import annotations

import logging
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from gateway import tasks
from gateway.domain.certificates import ServerNames
from gateway.domain.policy import CertificateFiles, Policy, Tls
from gateway.files import reason_of
from gateway.policies.tls import (
    CertificateFault,
    load_authorities,
    load_pair,
    read_certificate,
    server_context,
    validity_fault,
)
from gateway.runtime.file_watch import FileWatch, Signature, signature
from gateway.runtime.settings import CannotStart

log = logging.getLogger("gateway")

INTERVAL_S: Final = 1.0


class Certificates:
    """Owns the server-side TLS context. Raises CertificateFault if the first load fails.

    tls:       returns the setting in effect
    context:   for connections that begin now
    on_loaded: called in the loop's thread with the setting that was loaded, not for the first load
    on_fault:  likewise with what is wrong, once per change; the previous certificates stay in use
    """

    def __init__(
        self,
        tls: Callable[[], Tls],
        *,
        on_fault: Callable[[CertificateFault], None],
        on_loaded: Callable[[Tls], None] = lambda _tls: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._on_fault = on_fault
        self._on_loaded = on_loaded
        self._files = FileWatch(
            lambda: _look_at(tls()),
            lambda: _build(tls()),
            self._take,
            interval_s=interval_s,
            known=_look_at(tls()),
        )
        self.context = build_context(tls())

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._files.run()

    def reload_now(self) -> None:
        """Make `run` load the files now, changed or not (SIGHUP)."""
        self._files.read_now()

    def _take(self, built: tuple[Tls, ssl.SSLContext] | CertificateFault, _asked: bool) -> None:
        if isinstance(built, CertificateFault):
            self._on_fault(built)
        else:
            tls, self.context = built
            self._on_loaded(tls)


def keep_certificates(
    stack: AsyncExitStack, tls: Callable[[], Tls | None], setting: str
) -> Certificates | None:
    """The certificates of a policy setting, reloaded until the stack is closed.

    tls:     returns the setting as it is in the loaded policy. What is None at the start stays so;
             what becomes None later keeps its last value
    setting: "tls" or "admin_tls"

    Raises CannotStart if a certificate cannot be loaded.
    """
    first = tls()
    if first is None:
        return None
    last = first

    def current() -> Tls:
        nonlocal last
        last = tls() or last
        return last

    def report(fault: CertificateFault) -> None:
        log.error("%s: reload failed; keeping the previous certificates: %s", setting, fault)

    def loaded(used: Tls) -> None:
        log.info("%s: certificates loaded: %s", setting, _named(used))
        for pair in used.pairs:
            if (fault := validity_fault(pair.certificate, time.time())) is not None:
                log.warning("%s: clients will refuse the certificate %s", setting, fault)

    try:
        certificates = Certificates(current, on_fault=report, on_loaded=loaded)
    except CertificateFault as fault:
        raise CannotStart(f"{setting}: {fault}") from fault
    tasks.keep_running(stack, certificates.run(), f"certificates of {setting}")
    return certificates


def warn_of_admin_tls(policy: Policy, previous: Policy) -> None:
    """Log that the admin listener has TLS, or none, only after a restart, if that has changed."""
    if (policy.admin_tls is None) != (previous.admin_tls is None):
        log.warning("policy: admin_tls begins or ends after a restart")


def build_context(tls: Tls) -> ssl.SSLContext:
    """A server-side context with all certificates. Raises CertificateFault."""
    contexts = [_context_of(tls, pair) for pair in tls.pairs]
    if len(contexts) > 1:
        read = [read_certificate(pair.certificate) for pair in tls.pairs]
        names = ServerNames([() if each is None else each.names for each in read])
        _choose_by_name(contexts, names)
    return contexts[0]


def _context_of(tls: Tls, pair: CertificateFiles) -> ssl.SSLContext:
    context = server_context(tls.min_version, tls.ciphers, tls.curves)
    # Compression reveals secrets by the length of the result (CRIME); renegotiation costs the
    # server many times what it costs the client. RFC 9325, 3.3 and 3.4.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if tls.client_certificates is not None:
        try:
            load_authorities(context, tls.client_certificates)
        except OSError as exc:
            authorities = f"the authorities {tls.client_certificates.ca} of clients"
            raise CertificateFault(pair, f"{authorities}: {reason_of(exc)}") from exc
    load_pair(context, pair)
    return context


def _choose_by_name(contexts: list[ssl.SSLContext], names: ServerNames) -> None:
    """Have the first context use the certificate of the name that a client asks for."""
    # Not the first one itself, which would refer to itself: contexts would stay until a collection.
    others = contexts[1:]

    def choose(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if index := names.index(name):
            connection.context = others[index - 1]

    contexts[0].sni_callback = choose
    if not isinstance(sys.unraisablehook, _IgnoreNames):
        sys.unraisablehook = _IgnoreNames(sys.unraisablehook)


class _IgnoreNames:
    """Keeps Python from writing a traceback for each name that is not ASCII: anyone may send it.

    Python ends such a handshake, and then reports the error as one that it cannot raise. The name
    is the object of the report, and since 3.14 a part of its message.
    """

    def __init__(self, others: Callable[[Any], Any]) -> None:
        self._others = others

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        message = unraisable.err_msg or ""
        is_name = isinstance(unraisable.object, bytes) or "while decoding name" in message
        if not (is_name and isinstance(unraisable.exc_value, UnicodeDecodeError)):
            self._others(unraisable)


def _look_at(tls: Tls) -> Signature:
    """The signature of the files, and of the setting, which may change as well."""
    return (*signature(tls.files), (repr(tls), 0, 0, 0, 0))


def _build(tls: Tls) -> tuple[Tls, ssl.SSLContext] | CertificateFault:
    try:
        return tls, build_context(tls)
    except CertificateFault as fault:
        return fault


def _named(tls: Tls) -> str:
    return ", ".join(pair.certificate for pair in tls.pairs)
