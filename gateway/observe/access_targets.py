"""Where the lines of the access log go: a file, a pipe, standard output, syslog, or UDP.

Several workers may append to one file, or write to one pipe, and lines are not interleaved: one
call appends to a file atomically, and to all else complete lines of at most PIPE_BUF bytes are
written at once, which is atomic for a pipe. Only longer lines may be split there. To a socket each
line is a datagram.

Neither a full disk nor a reader that has stopped reading may delay a request: no write waits. Lines
that cannot be written are kept up to a bound, then dropped and counted, which is logged once;
of sockets once a minute.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from gateway.files import open_chosen
from gateway.observe.log_throttle import LogThrottle

_log = logging.getLogger(__name__)

#: The most bytes that wait for a reader that does not read, in addition to the pipe's 64 KiB.
MOST_WAITING_BYTES: Final = 256 * 1024
#: How long `close` waits for such a reader.
CLOSE_S: Final = 1.0
#: How often lost lines of a socket are logged: every other write to an unread UDP port fails.
LOG_EVERY_S: Final = 60.0
_STDOUT: Final = 1
_UNREAD: Final = OSError(errno.EAGAIN, "its reader does not read")
#: Not readable by all: lines contain clients' addresses, keys' ids and paths.
_MODE: Final = 0o640
#: The socket of the machine's syslog, and its port for UDP.
SYSLOG_SOCKET: Final = "/dev/log"
SYSLOG_PORT: Final = 514
#: RFC 5424, 6.2.1: facility local7, as nginx logs, and severity "informational".
_PRIORITY: Final = 23 * 8 + 6
_NAME: Final = "gateway"
_ADDRESS: Final = re.compile(r"udp://(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_EXPECTED: Final = (
    "a path, -, off, syslog:, syslog:/PATH, syslog:udp://HOST:PORT or udp://HOST:PORT"
)


class Target(Protocol):
    """Takes lines. dropped: lines that it could not write since it was opened"""

    dropped: int

    def write(self, lines: Sequence[str]) -> None:
        """Write lines, each with its end, and what waits. Never raises or waits."""
        ...

    def reopen(self) -> None:
        """Open a renamed file or a socket anew."""
        ...

    def close(self) -> None:
        """Write what waits, within CLOSE_S, and close. Nothing may be written afterwards."""
        ...


def open_target(target: str) -> Target:
    """Open a file, or a socket. target: as --access-log. Raises OSError and ValueError."""
    kind, colon, rest = target.partition(":")
    if kind == "syslog" and colon:
        if rest.startswith("udp:"):
            return DatagramTarget(*_udp_address(rest, SYSLOG_PORT), is_syslog=True)
        if rest and not rest.startswith("/"):
            raise ValueError(f"found {target!r}, expected {_EXPECTED}")
        return DatagramTarget(socket.AF_UNIX, rest or SYSLOG_SOCKET, is_syslog=True)
    if kind == "udp" and colon:
        return DatagramTarget(*_udp_address(target, None), is_syslog=False)
    return FileTarget(target)


def _udp_address(text: str, port: int | None) -> tuple[int, tuple[str, int]]:
    """The family and address of udp://HOST:PORT; its name is looked up here, once."""
    found = _ADDRESS.fullmatch(text)
    number = port if found is None or not found[3] else int(found[3])
    if found is None or number is None or not 1 <= number <= 65_535:
        raise ValueError(f"found {text!r}, expected udp://HOST:PORT, with a port from 1 to 65535")
    family, _, _, _, address = socket.getaddrinfo(
        found[1] or found[2], number, type=socket.SOCK_DGRAM
    )[0]
    return family, (str(address[0]), int(address[1]))


class FileTarget:
    """A file to append to, a named pipe, or standard output."""

    def __init__(self, target: str) -> None:
        self.dropped = 0
        self._target = target
        # Wait for the reader of a named pipe, like a shell.
        self._use(_open_stdout() if target == "-" else _open(target, wait=True))
        self._waiting = b""
        self._failing = False
        self._torn = False

    def write(self, lines: Sequence[str]) -> None:
        if not (lines or self._waiting):
            return
        if self._torn and not self._waiting:
            # End the line that was cut off by a full disk, so that it does not spoil the next one.
            self._waiting = b"\n"
        self._waiting += "".join(lines).encode("ascii")
        try:
            while self._waiting and self._is_writable(0.0):
                self._write_some()
        except BlockingIOError:  # other workers write to the same pipe
            pass
        except OSError as error:
            self._drop(error)
            return
        if not self._waiting:
            self._failing = False
        elif len(self._waiting) > MOST_WAITING_BYTES:
            self._drop(_UNREAD)

    def reopen(self) -> None:
        # If it fails, the renamed file stays in use.
        if self._target == "-":
            return
        try:
            fd = _open(self._target, wait=False)
        except OSError as error:
            _log.error("cannot reopen the access log: %s", error)
            return
        os.close(self._fd)
        self._use(fd)
        self._torn = False

    def close(self) -> None:
        self.write(())
        give_up = time.monotonic() + CLOSE_S
        while self._waiting and self._is_writable(give_up - time.monotonic()):
            self.write(())
        if self._waiting:
            self._drop(_UNREAD)
        if self._fd != _STDOUT:
            os.close(self._fd)

    def _use(self, fd: int) -> None:
        self._fd = fd
        self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def _is_writable(self, wait_s: float) -> bool:
        """Can PIPE_BUF bytes be written, now or within `wait_s`? To a file, always."""
        return self._is_file or bool(self._poll.poll(max(wait_s, 0.0) * 1000))

    def _write_some(self) -> None:
        written = os.write(self._fd, self._waiting[: self._most_bytes(self._waiting)])
        self._torn = self._waiting[written - 1 : written] != b"\n"
        self._waiting = self._waiting[written:]

    def _most_bytes(self, rest: bytes) -> int:
        """How much to write at once: all, or as many complete lines as a pipe writes atomically."""
        if self._is_file or len(rest) <= select.PIPE_BUF:
            return len(rest)
        end = rest.rfind(b"\n", 0, select.PIPE_BUF)
        return (end if end >= 0 else rest.index(b"\n")) + 1

    def _drop(self, error: OSError) -> None:
        rest, self._waiting = self._waiting, b""
        # A leading line end only ends a torn line, which has been counted.
        self.dropped += rest.count(b"\n") - rest.startswith(b"\n")
        if not self._failing:
            self._failing = True
            _log.error("cannot write the access log; dropping lines: %s", error.strerror)


class DatagramTarget:
    """Syslog, or a UDP port: each line is a datagram.

    A datagram that nobody received is lost without notice, except on the same machine.

    family: AF_UNIX, or that of the address; is_syslog: lines get the header of RFC 5424
    """

    def __init__(self, family: int, address: str | tuple[str, int], *, is_syslog: bool) -> None:
        self.dropped = 0
        self._family = family
        self._address = address
        self._is_syslog = is_syslog
        self._host = _syslog_host()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._throttle = LogThrottle(LOG_EVERY_S)
        self._socket = self._open()

    def write(self, lines: Sequence[str]) -> None:
        head = self._head() if lines else b""
        for line in lines:
            data = head + line.encode("ascii").removesuffix(b"\n")
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        failed = self._send()
        if failed is None and self._waiting_bytes > MOST_WAITING_BYTES:
            failed = _UNREAD
            while self._waiting:
                self._take()
                self.dropped += 1
        if failed is not None and self._throttle.suppressed("", time.monotonic()) is not None:
            _log.error("cannot send the access log; dropping lines: %s", failed.strerror)

    def reopen(self) -> None:
        try:
            opened = self._open()
        except OSError as error:
            _log.error("cannot reopen the access log: %s", error)
            return
        self._socket.close()
        self._socket = opened

    def close(self) -> None:
        give_up = time.monotonic() + CLOSE_S
        self.write(())
        # Not select.select(), which fails with descriptors from 1,024 on.
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        while self._waiting and (rest_s := give_up - time.monotonic()) > 0:
            poll.poll(rest_s * 1000)
            self.write(())
        self.dropped += len(self._waiting)
        self._socket.close()

    def _send(self) -> OSError | None:
        """Send what waits. Returns why a line was dropped; None: none was."""
        failed: OSError | None = None
        reopened = False
        while self._waiting:
            try:
                self._socket.send(self._waiting[0])
            except BlockingIOError:  # its buffer is full
                break
            except OSError as error:
                # A syslog that was started again has another socket of the same name.
                if self._family == socket.AF_UNIX and not reopened and error.errno in _GONE:
                    reopened = True
                    if self._opened_again():
                        continue
                failed = error
                self.dropped += 1
            self._take()
        return failed

    def _opened_again(self) -> bool:
        try:
            opened = self._open()
        except OSError:
            return False
        self._socket.close()
        self._socket = opened
        return True

    def _take(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft())

    def _open(self) -> socket.socket:
        opened = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            opened.setblocking(False)
            opened.connect(self._address)
        except OSError as error:
            opened.close()
            raise OSError(error.errno, f"{error.strerror}: {self._address}") from error
        return opened

    def _head(self) -> bytes:
        """RFC 5424, 6: priority, version, time, host, program, process, no id, no data."""
        if not self._is_syslog:
            return b""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return f"<{_PRIORITY}>1 {now} {self._host} {_NAME} {os.getpid()} - - ".encode("ascii")


#: What a closed or removed Unix socket answers.
_GONE: Final = frozenset(
    {errno.ECONNREFUSED, errno.ENOTCONN, errno.ECONNRESET, errno.ENOENT, errno.EPIPE}
)


def _syslog_host() -> str:
    """The name of this host; "-" if it is none that RFC 5424 allows."""
    name = socket.gethostname()
    return name if re.fullmatch(r"[!-~]{1,255}", name) else "-"


def _open(target: str, *, wait: bool) -> int:
    """Open a file. wait: for the reader of a named pipe; otherwise OSError if there is none"""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = open_chosen(target, flags | (0 if wait else os.O_NONBLOCK), _MODE)
    os.set_blocking(fd, False)
    return fd


def _open_stdout() -> int:
    """Standard output. A pipe is opened again, so that only this descriptor is non-blocking."""
    if stat.S_ISFIFO(os.fstat(_STDOUT).st_mode):
        with contextlib.suppress(OSError):  # it is another user's pipe, or there is no /proc
            return os.open(f"/proc/self/fd/{_STDOUT}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return _STDOUT
