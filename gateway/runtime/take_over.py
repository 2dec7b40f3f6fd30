"""How a running gateway hands its listening sockets to the gateway that replaces it.

The running gateway (the predecessor) listens on a unix socket in its data folder. The new one (the
successor) connects to it, and both check that the other end is a process of the same user. Each
message is one record of JSON, which may carry descriptors (SCM_RIGHTS):

    successor    {"version": 1}                     please hand over
    predecessor  {"admin": "127.0.0.1:9901"}        the address of its admin listener
    predecessor  {"listen": true} + sockets         for clients; may be repeated
    predecessor  {"listen_admin": true} + sockets   for the admin listener; may be repeated
    predecessor  {"given": true}                    these were all
    successor    {"serving": true}                  all of its workers accept clients now
    predecessor  {"left": true}                     it accepts no other successor, and drains

Instead of any of its messages the predecessor may send {"refused": "the reason"}; it does so, too,
when a successor does not serve within `SERVING_S`. The two may be of
different versions of this program: unknown members are ignored, and a change that must not be
ignored takes another version number.

A predecessor that drains still listens for a successor. It has closed its sockets for clients by
then, so it hands over those of its admin listener alone, and the successor binds the others.

Both processes accept from the same sockets for a while, so no client is refused, and a connection
that waits in a socket is not lost with one of the processes. If the connection between the two ends
before "serving", the successor has failed, and the predecessor keeps serving. If it ends after
"given", the predecessor has ended, and the successor goes on.

Linux only: it takes SOCK_SEQPACKET, SO_PEERCRED and /proc/self/fd.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from gateway import tasks
from gateway.files import check_private_folder, private_folder
from gateway.runtime.settings import authority
from gateway.runtime.sockets import InheritedSockets

log = logging.getLogger("gateway")

VERSION: Final = 1
#: How long either end waits for a message that the other one can send at once.
ANSWER_S: Final = 10.0
#: How long the predecessor waits for a successor to serve. In this time that starts its workers, up
#: to 256 of them; one that is silent for half a minute is given up.
SERVING_S: Final = 120.0
#: The pause after accept() has failed, because descriptors or memory are used up.
_PAUSE_S: Final = 1.0
#: Descriptors in one record; the kernel takes up to 253.
_MOST_AT_ONCE: Final = 128
_MOST_BYTES: Final = 16_384
#: struct ucred: process, user, group.
_PEER: Final = struct.Struct("iII")


class HandoverFailed(Exception):
    """Why a running gateway does not hand over its sockets, in one line."""


def handover_path(data: Path, host: str, port: int) -> Path:
    """The unix socket of the gateway that listens at this address."""
    return data / f"take-over-{quote(authority(host, port), safe='[]:')}.sock"


# -- the successor's end ---------------------------------------------------------------------------
class Predecessor:
    """The running gateway. Its methods block: within a loop, call them in a thread.

    pid: its process; sockets: what it has handed over
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.pid = 0
        self.sockets = InheritedSockets()

    @classmethod
    def find(cls, path: Path) -> Predecessor | None:
        """Get the sockets of the gateway at this path; None: none runs. Raises HandoverFailed."""
        end = _connect(path)
        if end is None:
            return None
        found = cls(end)
        try:
            found.pid = peer_pid(end)
            found.sockets = _receive_sockets(end)
        except (EOFError, ConnectionError):
            found.close()
            return None  # it has just died
        except (OSError, ValueError) as error:
            found.close()
            raise HandoverFailed(f"{path} (pid {found.pid}): {_reason(error)}") from error
        except BaseException:
            found.close()
            raise
        return found

    def complete(self) -> None:
        """Tell it that this process serves, and wait until it accepts no other successor.

        Nothing is left to do where it has ended meanwhile. Where it only does not answer, or has
        given this process up, it keeps serving, or another process does: this one must not. Raises
        HandoverFailed.
        """
        try:
            # Where it cannot be told any more, its last word says why.
            with suppress(BrokenPipeError):
                _send(self._end, {"serving": True})
            _wait_until_left(self._end)
        except (EOFError, ConnectionError):
            log.warning("take-over: the previous gateway (pid %d) has ended meanwhile", self.pid)
        except (OSError, ValueError) as error:
            raise HandoverFailed(f"running gateway (pid {self.pid}): {_reason(error)}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Disconnect: without `complete` it keeps serving. Harmless when repeated."""
        self._end.close()


def _wait_until_left(end: socket.socket) -> None:
    """Wait for {"left": true}. Raises EOFError or ConnectionError where the predecessor has ended.

    Raises HandoverFailed where it has given this successor up, and TimeoutError where it is silent.
    After a TimeoutError the predecessor can be sure that it has not left, so that one of the two
    serves, however late it is.
    """
    try:
        _check_refusal(_receive(end)[0])
    except TimeoutError:
        # From here on it cannot send the word any more; before, it may have done so just now.
        end.shutdown(socket.SHUT_RD)
        with suppress(EOFError):
            _check_refusal(_receive(end)[0])
            return
        _send(end, {"failed": True})  # a ConnectionError, where it has died
        raise


def _check_refusal(message: dict[str, Any]) -> None:
    if "refused" in message:
        raise HandoverFailed(f"the running gateway refuses: {message['refused']}")


def running_pid(path: Path) -> int | None:
    """The process of the gateway that can be taken over at this path; None: there is none."""
    try:
        end = _connect(path)
        if end is None:
            return None
        with end:
            return peer_pid(end)
    except (HandoverFailed, OSError):
        return None


def _connect(path: Path) -> socket.socket | None:
    """A connection to the gateway at this path; None: there is none. Raises HandoverFailed."""
    if sys.platform != "linux":
        raise HandoverFailed("a gateway can only be taken over on Linux")
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(ANSWER_S)
    try:
        # Others could have put a link to another gateway's socket there.
        check_private_folder(path.parent)
        with _short_name(path) as name:
            end.connect(name)
    except (FileNotFoundError, ConnectionRefusedError):
        end.close()
        return None
    except OSError as error:
        end.close()
        raise HandoverFailed(f"{path}: {_reason(error)}") from error
    return end


def _receive_sockets(end: socket.socket) -> InheritedSockets:
    listen: list[socket.socket] = []
    admin: list[socket.socket] = []
    address = ""
    try:
        _send(end, {"version": VERSION})
        while True:
            message, sockets = _receive(end)
            (admin if "listen_admin" in message else listen).extend(sockets)
            _check_refusal(message)
            address = str(message.get("admin", address))
            if "given" in message:
                return InheritedSockets(tuple(listen), tuple(admin), address)
    except BaseException:
        InheritedSockets(tuple(listen), tuple(admin)).close()
        raise


# -- the predecessor's end -------------------------------------------------------------------------
class HandoverServer:
    """Hands the sockets of this gateway to one successor, between `open` and `close`.

    sockets:    those that are closed by then are left out
    taken_over: called with the pid of a successor once that serves
    """

    def __init__(
        self, path: Path, sockets: InheritedSockets, taken_over: Callable[[int], None]
    ) -> None:
        self._path = path
        self._sockets = sockets
        self._taken_over = taken_over
        #: The unix socket, and the task that accepts from it.
        self._listening: tuple[socket.socket, asyncio.Task[None]] | None = None
        #: The inode of the file, which is not used again while its socket is open.
        self._file = 0
        #: The process that has received the sockets and does not serve yet.
        self._successor: int | None = None

    def open(self) -> None:
        """Begin to listen for a successor. Raises OSError, where the folder cannot be used."""
        if sys.platform != "linux":
            return
        private_folder(self._path.parent)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listening.setblocking(False)
            # On Linux the file gets the mode of the socket: it is never open to other users.
            os.fchmod(listening.fileno(), 0o600)
            # A file that is there is left over: its gateway had the address that we have now.
            self._path.unlink(missing_ok=True)
            with _short_name(self._path) as name:
                listening.bind(name)
            self._file = self._path.lstat().st_ino
            listening.listen()
        except BaseException:
            listening.close()
            raise
        self._listening = listening, tasks.spawn(self._accept(listening), "take-over")

    async def close(self) -> None:
        """Stop listening for a successor; harmless when repeated."""
        opened, self._listening = self._listening, None
        if opened is not None:
            listening, accepting = opened
            # The file goes first: as long as it is there, it is answered. It may be another's:
            # of a gateway that was started at this address while this one drained.
            with suppress(FileNotFoundError):
                if self._path.lstat().st_ino == self._file:
                    self._path.unlink()
            accepting.cancel()
            await asyncio.wait([accepting])
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                end, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.error("take-over: a successor cannot be accepted: %s", _reason(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            tasks.spawn(self._handle(end), "successor")

    async def _handle(self, end: socket.socket) -> None:
        with closing(end):
            end.setblocking(False)
            try:
                pid = peer_pid(end)
                async with asyncio.timeout(ANSWER_S):
                    refusal = self._refusal(await _receive_text(end))
                if refusal:
                    _send(end, {"refused": refusal})
                    return
            except (EOFError, ConnectionError):
                return  # `running_pid` says nothing
            except (OSError, ValueError) as error:  # TimeoutError among them
                log.warning("take-over refused: %s", _reason(error))
                return
            try:
                await self._hand_over(end, pid)
            except (OSError, EOFError, ValueError, HandoverFailed) as error:
                why = _reason(error)
                log.error("take-over by pid %d failed: %s; nothing changes here", pid, why)

    def _refusal(self, message: dict[str, Any]) -> str:
        """Why this request is refused; "": it is not."""
        if message.get("version") != VERSION:
            found = message.get("version")
            return f"found version {found!r} of the hand-over, expected version {VERSION}"
        if self._successor is not None:
            return f"another process is taking over (pid {self._successor})"
        return ""

    async def _hand_over(self, end: socket.socket, pid: int) -> None:
        self._successor = pid
        try:
            _send(end, {"admin": self._sockets.admin_address})
            for name, sockets in (
                ("listen", self._sockets.listen),
                ("listen_admin", self._sockets.admin),
            ):
                still_open = [one for one in sockets if one.fileno() != -1]
                for start in range(0, len(still_open), _MOST_AT_ONCE):
                    _send(end, {name: True}, still_open[start : start + _MOST_AT_ONCE])
            _send(end, {"given": True})
            log.info("take-over: pid %d has the listening sockets", pid)
            await _wait_until_serving(end)
        finally:
            self._successor = None
        await self.close()
        try:
            _send(end, {"left": True})
        except OSError:
            self.open()  # the successor has died at the last moment
            raise
        self._taken_over(pid)


async def _wait_until_serving(end: socket.socket) -> None:
    """Wait for {"serving": true}. Raises HandoverFailed where it does not come.

    A successor that is late cannot be heard any more, and is told, so that it ends when it goes on
    after all.
    """
    # Not under `asyncio.timeout`: a message that was received as the time ran out would be lost.
    hearing = tasks.spawn(_why_not_serving(end), "successor")
    await asyncio.wait([hearing], timeout=SERVING_S)
    is_late = not hearing.done()
    if is_late:
        # From here on it cannot send the word any more; before, it may have done so just now.
        end.shutdown(socket.SHUT_RD)
    why = await hearing
    if why and is_late:
        with suppress(OSError):
            _send(end, {"refused": f"it waited {SERVING_S:g} s for this process to serve"})
        why = (
            f"it did not serve within {SERVING_S:g} s; if that process still runs, end it, as it "
            "has the listening sockets"
        )
    if why:
        raise HandoverFailed(why)


async def _why_not_serving(end: socket.socket) -> str:
    """Why a successor will not serve; "": it has said that it does."""
    try:
        while "serving" not in await _receive_text(end):
            pass
    except (OSError, EOFError, ValueError) as error:
        return _reason(error)
    return ""


# -- both ends -------------------------------------------------------------------------------------
def peer_pid(end: socket.socket) -> int:
    """The process at the other end. Raises PermissionError where it is another user's."""
    pid, user, _ = _PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user != os.geteuid():
        raise PermissionError(
            None, f"found a process of user {user} (pid {pid}), expected user {os.geteuid()}"
        )
    return int(pid)


def _send(
    end: socket.socket, message: dict[str, Any], sockets: Sequence[socket.socket] = ()
) -> None:
    socket.send_fds(end, [json.dumps(message).encode()], [one.fileno() for one in sockets])


def _receive(end: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    """The next message. Raises EOFError where the other end has closed, or ValueError."""
    # Not socket.recv_fds: in Python 3.11 it drops the flags, and any child process would inherit
    # these sockets.
    room = socket.CMSG_SPACE(_MOST_AT_ONCE * array("i").itemsize)
    data, ancillary, flags, _ = end.recvmsg(_MOST_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    try:
        if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise ValueError("a message was truncated: too long, or no descriptors are left")
        return _parse(data), sockets
    except BaseException:
        for one in sockets:
            one.close()
        raise


async def _receive_text(end: socket.socket) -> dict[str, Any]:
    """The next message of a successor, which sends no descriptors."""
    return _parse(await asyncio.get_running_loop().sock_recv(end, _MOST_BYTES))


def _parse(data: bytes) -> dict[str, Any]:
    if not data:
        raise EOFError("the other process has closed the connection")
    with suppress(ValueError):
        if isinstance(message := json.loads(data), dict):
            return message
    raise ValueError("found a message that is no JSON object")


@contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """A name for this path that fits into a sockaddr_un, which has room for 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S:g} s"
    return getattr(error, "strerror", None) or str(error)
