"""The messages between a supervisor and a worker, over a socketpair.

A message is its length in four bytes and the pickled value. Pickle, because these are typed values
(settings, a policy, counts) and both ends are the same program of the same user; no data from a
network is ever unpickled. The channel carries the store's password, so that it is on no command
line.

The kernel closes an end when its process dies, whatever the reason; so each side detects the death
of the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import pickle
import socket
import struct
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from gateway.admin.readiness import Readiness
from gateway.domain.policy import Policy, Tls
from gateway.observe.registry import Snapshot
from gateway.runtime.settings import Settings

_LENGTH: Final = struct.Struct("!I")
#: Read at once from an end that is closing, and discarded.
_IGNORED_BYTES: Final = 65536


# -- to a worker -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Start:
    """The first message: what the worker starts with.

    sockets:  descriptors of the bound sockets of all workers, inherited
    policy:   the last valid one; the worker reads the files soon after
    tls:      the TLS setting in effect; None: the workers have no TLS, whatever the policy says
    inflight: descriptor of the memory for `proxy/inflight.py`, inherited; None: there is none
    role:     what it is, for its log
    """

    settings: Settings
    sockets: tuple[tuple[int, ...], ...]
    policy: Policy
    tls: Tls | None
    log_level: str
    inflight: int | None = None
    role: Literal["worker", "courier"] = "worker"

    def of_sockets(self, sockets: tuple[tuple[int, ...], ...]) -> Start:
        """The same with these descriptors."""
        return replace(self, sockets=sockets)


@dataclass(frozen=True, slots=True)
class RequestReport:
    """Send a `Report`."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Reload the policies and reopen the access log, as at SIGHUP."""


@dataclass(frozen=True, slots=True)
class StopNow:
    """Stop waiting for requests in progress."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Accept connections for this worker too, because it cannot."""

    worker: int


@dataclass(frozen=True, slots=True)
class Release:
    """Stop accepting connections for this worker."""

    worker: int


# -- from a worker ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot start, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The worker accepts clients now."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The worker accepts no more clients."""


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to `RequestReport`, and the last message of a worker that stops.

    drain_s: the timeout of a drain
    """

    metrics: Snapshot
    readiness: Readiness
    drain_s: float


@dataclass(frozen=True, slots=True)
class PolicyLoaded:
    """The worker has loaded this policy. requested: as SIGHUP requests it"""

    policy: Policy
    requested: bool = False


ToWorker = Start | RequestReport | Reload | StopNow | Adopt | Release
FromWorker = Failed | Serving | Draining | Report | PolicyLoaded


class Channel:
    """One end of the channel. `send` never waits: messages are small, or were requested."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """Open a channel on one end of a socketpair, which is closed if that fails."""
        try:
            return cls(*await asyncio.open_unix_connection(sock=end))
        except BaseException:
            end.close()
            raise

    def send(self, message: ToWorker | FromWorker) -> None:
        """Send a message. It is lost if the other end has closed."""
        if not self._writer.is_closing():
            body = pickle.dumps(message)
            self._writer.write(_LENGTH.pack(len(body)) + body)

    async def receive(self) -> Any:
        """The next message; None: the other end has closed."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))  # noqa: S301 - see above
        except (asyncio.IncompleteReadError, OSError):
            return None

    def abort(self) -> None:
        """Close now, discarding unsent messages."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close after the other end has received everything and has closed too.

        Closing first would lose messages: a process that sends to a closed end gets an error before
        it reads the messages that it has not received yet.
        """
        with contextlib.suppress(OSError):
            if not self._writer.is_closing():
                self._writer.write_eof()
            while await self._reader.read(_IGNORED_BYTES):
                pass
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _view(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


# A policy's mappings are read-only views, which pickle does not support.
copyreg.pickle(MappingProxyType, lambda view: (_view, (dict(view),)))
