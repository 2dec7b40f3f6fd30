"""The messages between a supervisor and a worker, over a socketpair.

A message is its length in four bytes and the pickled value. Pickle, because these are typed values
(settings, a policy, counts) and both ends are one program of one user, who could as well look into
the memory of either; nothing that came from a network is ever read here as a message. The channel
carries the store's password, so that it is on no command line.

The kernel closes an end when its process dies, whatever the reason. That is how each side learns of
the other's death.
"""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import pickle
import socket
import struct
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

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
    """The first message: be this worker.

    sockets:  descriptors of every worker's bound sockets, which were passed on
    policy:   the last that was good; the files are read soon enough
    tls:      what all workers wrap clients in, whatever the files say by now
    inflight: descriptor of the memory for `proxy/inflight.py`, passed on; None: there is none
    """

    settings: Settings
    sockets: tuple[tuple[int, ...], ...]
    policy: Policy
    tls: Tls | None
    log_level: str
    inflight: int | None = None


@dataclass(frozen=True, slots=True)
class RequestReport:
    """Send a `Report`."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Reload the policies and reopen the access log, as at SIGHUP."""


@dataclass(frozen=True, slots=True)
class StopNow:
    """Do not wait any longer for requests in progress."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Accept connections for this worker too: it cannot."""

    worker: int


@dataclass(frozen=True, slots=True)
class Release:
    """Stop that: the worker can again."""

    worker: int


# -- from a worker ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot start, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Serving:
    """It accepts clients now."""


@dataclass(frozen=True, slots=True)
class Draining:
    """It accepts no more clients."""


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to `RequestReport`, and the last message of a worker that stops.

    drain_s: how long a drain may take
    """

    metrics: Snapshot
    readiness: Readiness
    drain_s: float


@dataclass(frozen=True, slots=True)
class PolicyLoaded:
    """The worker has loaded this policy."""

    policy: Policy


ToWorker = Start | RequestReport | Reload | StopNow | Adopt | Release
FromWorker = Failed | Serving | Draining | Report | PolicyLoaded


class Channel:
    """One end. `send` never waits: messages are small, or were requested."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """Take over one end of a socketpair; it is closed where that fails."""
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
        """Close at once, discarding what was not sent yet."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close once the other end has received everything, and has closed too.

        Closing first would lose messages: a process that sends to a closed end gets an error before
        it reads the messages that are still waiting for it.
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


# A policy's mappings are read-only views, which pickle does not know, not even their type.
copyreg.pickle(MappingProxyType, lambda view: (_view, (dict(view),)))
