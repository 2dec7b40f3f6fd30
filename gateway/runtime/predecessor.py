"""The successor's end of a take-over: gets the running gateway's sockets, then makes it drain.

`take_over` has the messages.
"""

from __future__ import annotations

import logging
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.files import check_private_folder
from gateway.runtime import take_over
from gateway.runtime.sockets import InheritedSockets
from gateway.runtime.take_over import (
    VERSION,
    TakeOverFailed,
    failure_words,
    peer_pid,
    receive,
    send,
    short_name,
)

log = logging.getLogger("gateway")


class Predecessor:
    """The running gateway. Its methods block: in an event loop, call them in a thread.

    pid: its process; sockets: those that it has passed
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.pid = 0
        self.sockets = InheritedSockets()

    @classmethod
    def find(cls, path: Path) -> Predecessor | None:
        """Get the sockets of the gateway at this path; None: none runs. Raises TakeOverFailed."""
        end = connect(path)
        if end is None:
            return None
        found = cls(end)
        try:
            found.pid = peer_pid(end)
            found.sockets = _receive_sockets(end)
        except (EOFError, ConnectionError):
            found.close()
            return None  # the predecessor has just died
        except (OSError, ValueError) as error:
            found.close()
            raise TakeOverFailed(f"{path} (pid {found.pid}): {failure_words(error)}") from error
        except BaseException:
            found.close()
            raise
        return found

    def complete(self) -> None:
        """Report that this process serves, and wait until it accepts no other successor.

        Returns also if the predecessor has ended meanwhile. Raises TakeOverFailed if it does not
        answer or has refused this process: then the predecessor or another successor serves, and
        this process must not.
        """
        try:
            # If this fails, the last message of the predecessor says why.
            with suppress(BrokenPipeError):
                send(self._end, {"serving": True})
            _wait_until_left(self._end)
        except (EOFError, ConnectionError):
            log.warning("take-over: the previous gateway (pid %d) has already ended", self.pid)
        except (OSError, ValueError) as error:
            raise TakeOverFailed(
                f"running gateway (pid {self.pid}): {failure_words(error)}"
            ) from error
        finally:
            self.close()

    def close(self) -> None:
        """Disconnect: without `complete` the predecessor keeps serving. Idempotent."""
        self._end.close()


def _wait_until_left(end: socket.socket) -> None:
    """Wait for {"left": true}. Raises EOFError or ConnectionError if the predecessor has ended.

    Raises TakeOverFailed if it has refused this successor, and TimeoutError if it does not answer.
    After a TimeoutError its "left" can no longer be sent, so that exactly one of the two serves,
    however late it is.
    """
    try:
        _check_refusal(receive(end)[0])
    except TimeoutError:
        # From now on it cannot send "left"; it may have done so just before.
        end.shutdown(socket.SHUT_RD)
        with suppress(EOFError):
            _check_refusal(receive(end)[0])
            return
        send(end, {"failed": True})  # a ConnectionError if it has died
        raise


def _check_refusal(message: dict[str, Any]) -> None:
    if "refused" in message:
        raise TakeOverFailed(f"the running gateway refuses: {message['refused']}")


def running_pid(path: Path) -> int | None:
    """The process of the gateway that can be taken over at this path; None: there is none."""
    try:
        end = connect(path)
        if end is None:
            return None
        with end:
            return peer_pid(end)
    except (TakeOverFailed, OSError):
        return None


def connect(path: Path) -> socket.socket | None:
    """A connection to the gateway at this path; None: there is none. Raises TakeOverFailed."""
    if sys.platform != "linux":
        raise TakeOverFailed("a gateway can only be taken over on Linux")
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(take_over.ANSWER_S)
    try:
        # Other users could have planted a link to another gateway's socket.
        check_private_folder(path.parent)
        with short_name(path) as name:
            end.connect(name)
    except (FileNotFoundError, ConnectionRefusedError):
        end.close()
        return None
    except OSError as error:
        end.close()
        raise TakeOverFailed(f"{path}: {failure_words(error)}") from error
    return end


def _receive_sockets(end: socket.socket) -> InheritedSockets:
    listen: list[socket.socket] = []
    admin: list[socket.socket] = []
    address = ""
    try:
        send(end, {"version": VERSION})
        while True:
            message, sockets = receive(end)
            (admin if "listen_admin" in message else listen).extend(sockets)
            _check_refusal(message)
            address = str(message.get("admin", address))
            if "given" in message:
                return InheritedSockets(tuple(listen), tuple(admin), address)
    except BaseException:
        InheritedSockets(tuple(listen), tuple(admin)).close()
        raise
