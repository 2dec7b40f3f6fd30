"""Take-over: a running gateway passes its listening sockets to the gateway that replaces it.

The running gateway (the predecessor) listens on a unix socket in its data folder. The new one (the
successor) connects to it, and both check that the other end is a process of the same user. Each
message is one record of JSON, which may carry descriptors (SCM_RIGHTS):

    successor    {"version": 1}                     request the sockets
    predecessor  {"admin": "127.0.0.1:9901"}        the address of its admin listener
    predecessor  {"listen": true} + sockets         for clients; may be repeated
    predecessor  {"listen_admin": true} + sockets   for the admin listener; may be repeated
    predecessor  {"given": true}                    all sockets were sent
    successor    {"serving": true}                  all of its workers accept clients now
    predecessor  {"left": true}                     it accepts no other successor, and drains

Instead of any of its messages the predecessor may send {"refused": "the reason"}, as when a
successor does not serve within `SERVING_S`. The two may be different versions of this program:
unknown members are ignored, and a change that must not be ignored needs another version number.

A predecessor that drains still listens for a successor. It has closed its sockets for clients
already, so it passes only those of its admin listener, and the successor binds the others.

Both processes accept from the same sockets for a while, so no client is refused, and no connection
in a queue is lost when one of the processes ends. If the connection between the two ends before
"serving", the successor has failed, and the predecessor keeps serving. If it ends after "given",
the predecessor has ended, and the successor continues.

Linux only: it needs SOCK_SEQPACKET, SO_PEERCRED and /proc/self/fd.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from gateway.domain.json_text import read_json
from gateway.runtime.settings import authority

VERSION: Final = 1
#: The timeout for a message that the other end can send immediately.
ANSWER_S: Final = 10.0
#: Descriptors in one record; the kernel allows up to 253.
MOST_AT_ONCE: Final = 128
_MOST_BYTES: Final = 16_384
#: struct ucred: process, user, group.
_PEER: Final = struct.Struct("iII")


class TakeOverFailed(Exception):
    """Why a take-over failed, in one line."""


def take_over_path(data: Path, host: str, port: int) -> Path:
    """The unix socket of the gateway that listens at this address."""
    return data / f"take-over-{quote(authority(host, port), safe='[]:')}.sock"


def peer_pid(end: socket.socket) -> int:
    """The pid of the other end. Raises PermissionError if it runs as another user."""
    pid, user, _ = _PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user != os.geteuid():
        raise PermissionError(
            None, f"found a process of user {user} (pid {pid}), expected user {os.geteuid()}"
        )
    return int(pid)


def send(
    end: socket.socket, message: dict[str, Any], sockets: Sequence[socket.socket] = ()
) -> None:
    socket.send_fds(end, [json.dumps(message).encode()], [one.fileno() for one in sockets])


def receive(end: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    """The next message. Raises EOFError if the other end has closed, or ValueError."""
    # Not socket.recv_fds: in Python 3.11 it drops the flags, and any child process would inherit
    # these sockets.
    room = socket.CMSG_SPACE(MOST_AT_ONCE * array("i").itemsize)
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


async def receive_text(end: socket.socket) -> dict[str, Any]:
    """The next message of a successor, without descriptors."""
    return _parse(await asyncio.get_running_loop().sock_recv(end, _MOST_BYTES))


def _parse(data: bytes) -> dict[str, Any]:
    if not data:
        raise EOFError("the other process has closed the connection")
    with suppress(ValueError):
        if isinstance(message := read_json(data), dict):
            return message
    raise ValueError("found a message that is not a JSON object")


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for this path that fits into a sockaddr_un: at most 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def failure_words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S:g} s"
    return getattr(error, "strerror", None) or str(error)
