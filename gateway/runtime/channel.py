"""What a supervisor and a worker say to each other, over a socketpair.

A message is its length in four bytes and the pickled value. Pickle, because these are typed values
(settings, a policy, counts) and both ends are one program of one user, who could as well look into
the memory of either; nothing that came from a network is ever read here as a message. The line
carries the store's password, which therefore stands on no command line.

The supervisor's end closes when it dies, however it dies, and so does a worker's: that is how each
learns of it.
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
from gateway.observe.metrics import Snapshot
from gateway.runtime.settings import Settings

_LENGTH: Final = struct.Struct("!I")
#: Taken at once of what an end that closes does not care for any more.
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
class Ask:
    """Send a `Report`."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What SIGHUP means."""


@dataclass(frozen=True, slots=True)
class Hurry:
    """Wait no longer for what is under way."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Accept this worker's clients, too: it cannot."""

    worker: int


@dataclass(frozen=True, slots=True)
class Release:
    """It can again."""

    worker: int


# -- from a worker ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot start, for this reason."""

    words: str


@dataclass(frozen=True, slots=True)
class Serving:
    """It accepts clients now."""


@dataclass(frozen=True, slots=True)
class Draining:
    """It accepts none any more."""


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to `Ask`, and the last word of one that ends.

    drain_s: how long a drain may take
    """

    metrics: Snapshot
    readiness: Readiness
    drain_s: float


@dataclass(frozen=True, slots=True)
class TookUp:
    """A policy is in force, and good."""

    policy: Policy


Order = Start | Ask | Reload | Hurry | Adopt | Release
Word = Failed | Serving | Draining | Report | TookUp


class Channel:
    """One end. `send` never waits: what is said is little, or was asked for."""

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

    def send(self, message: Order | Word) -> None:
        """Say something; nobody hears it where the other end has gone."""
        if not self._writer.is_closing():
            body = pickle.dumps(message)
            self._writer.write(_LENGTH.pack(len(body)) + body)

    async def receive(self) -> Any:
        """What the other end says next; None: it has gone, and nothing more comes."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))  # noqa: S301 - see above
        except (asyncio.IncompleteReadError, OSError):
            return None

    def abort(self) -> None:
        """Hang up at once; what was not sent yet is of no use any more."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Have all that was said heard, then hang up: the other end does so once it has heard it.

        Hanging up first would lose words. Whoever speaks to an end that has closed is told that it
        did, and told so before it reads what was said last.
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
