"""The running gateway's end of a take-over: it passes its sockets to one successor at a time.

`take_over` has the messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from gateway import tasks
from gateway.files import private_folder
from gateway.runtime import take_over
from gateway.runtime.sockets import InheritedSockets
from gateway.runtime.take_over import (
    MOST_AT_ONCE,
    VERSION,
    TakeOverFailed,
    failure_words,
    peer_pid,
    receive_text,
    send,
    short_name,
)

log = logging.getLogger("gateway")

#: How long the predecessor waits for a successor to serve. In this time the successor starts its
#: workers, up to 256; it kills one that is silent for half a minute.
SERVING_S: Final = 120.0
#: The pause after a failed accept(): out of descriptors or memory.
_PAUSE_S: Final = 1.0


class TakeOverServer:
    """Passes the sockets of this gateway to one successor, between `open` and `close`.

    sockets:    those that are closed when a successor asks are left out
    taken_over: called with the pid of a successor once it serves
    """

    def __init__(
        self, path: Path, sockets: InheritedSockets, taken_over: Callable[[int], None]
    ) -> None:
        self._path = path
        self._sockets = sockets
        self._taken_over = taken_over
        #: The unix socket, and the task that accepts from it.
        self._listening: tuple[socket.socket, asyncio.Task[None]] | None = None
        #: The inode of the file, which is not reused while its socket is open.
        self._file = 0
        #: The process that has received the sockets and does not serve yet.
        self._successor: int | None = None

    def open(self) -> None:
        """Start to listen for a successor. Raises OSError if the folder cannot be used."""
        if sys.platform != "linux":
            return
        private_folder(self._path.parent)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listening.setblocking(False)
            # On Linux the file gets the mode of the socket: it is never open to other users.
            os.fchmod(listening.fileno(), 0o600)
            # An existing file is left over from a gateway that had the address of this one.
            self._path.unlink(missing_ok=True)
            with short_name(self._path) as name:
                listening.bind(name)
            self._file = self._path.lstat().st_ino
            listening.listen()
        except BaseException:
            listening.close()
            raise
        self._listening = listening, tasks.spawn(self._accept(listening), "take-over")

    async def close(self) -> None:
        """Stop listening for a successor. Idempotent."""
        opened, self._listening = self._listening, None
        if opened is not None:
            listening, accepting = opened
            # The file is removed first: a successor that finds it gets an answer. It may belong to
            # another gateway, started at this address while this one drained.
            with suppress(FileNotFoundError):
                if self._path.lstat().st_ino == self._file:
                    self._path.unlink()
            await tasks.end(accepting)
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                end, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.error("take-over: cannot accept a connection: %s", failure_words(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            tasks.spawn(self._handle(end), "successor")

    async def _handle(self, end: socket.socket) -> None:
        with closing(end):
            end.setblocking(False)
            try:
                pid = peer_pid(end)
                async with asyncio.timeout(take_over.ANSWER_S):
                    refusal = self._refusal(await receive_text(end))
                if refusal:
                    send(end, {"refused": refusal})
                    return
            except (EOFError, ConnectionError):
                return  # `running_pid` connects and sends nothing
            except (OSError, ValueError) as error:  # TimeoutError among them
                log.warning("take-over refused: %s", failure_words(error))
                return
            try:
                await self._hand_over(end, pid)
            except (OSError, EOFError, ValueError, TakeOverFailed) as error:
                why = failure_words(error)
                log.error("take-over by pid %d failed: %s; this gateway continues", pid, why)

    def _refusal(self, message: dict[str, Any]) -> str:
        """Why this request is refused; "" if it is not."""
        if message.get("version") != VERSION:
            found = message.get("version")
            return f"found version {found!r} of the take-over protocol, expected version {VERSION}"
        if self._successor is not None:
            return f"another process is taking over (pid {self._successor})"
        return ""

    async def _hand_over(self, end: socket.socket, pid: int) -> None:
        self._successor = pid
        try:
            send(end, {"admin": self._sockets.admin_address})
            for name, sockets in (
                ("listen", self._sockets.listen),
                ("listen_admin", self._sockets.admin),
            ):
                still_open = [one for one in sockets if one.fileno() != -1]
                for start in range(0, len(still_open), MOST_AT_ONCE):
                    send(end, {name: True}, still_open[start : start + MOST_AT_ONCE])
            send(end, {"given": True})
            log.info("take-over: pid %d has received the listening sockets", pid)
            await _wait_until_serving(end)
        finally:
            self._successor = None
        await self.close()
        try:
            send(end, {"left": True})
        except OSError:
            self.open()  # the successor has just died
            raise
        self._taken_over(pid)


async def _wait_until_serving(end: socket.socket) -> None:
    """Wait for {"serving": true}. Raises TakeOverFailed if it does not arrive.

    A late successor can no longer send it, and gets a refusal, so that it ends if it still runs.
    """
    # Not with `asyncio.timeout`: a message received just as the time runs out would be lost.
    hearing = tasks.spawn(_why_not_serving(end), "successor")
    await asyncio.wait([hearing], timeout=SERVING_S)
    is_late = not hearing.done()
    if is_late:
        # From now on it cannot send "serving"; it may have done so just before.
        end.shutdown(socket.SHUT_RD)
    why = await hearing
    if why and is_late:
        with suppress(OSError):
            send(end, {"refused": f"this process did not serve within {SERVING_S:g} s"})
        why = (
            f"it did not serve within {SERVING_S:g} s; if that process still runs, end it, as it "
            "has the listening sockets"
        )
    if why:
        raise TakeOverFailed(why)


async def _why_not_serving(end: socket.socket) -> str:
    """Why a successor will not serve; "" if it has sent "serving"."""
    try:
        while "serving" not in await receive_text(end):
            pass
    except (OSError, EOFError, ValueError) as error:
        return failure_words(error)
    return ""
