"""The access log: one JSON object for each exchange, with the names that `gateway simulate` reads.

Lines are collected in memory and written together, because a system call for each would cost more
than the line. Several workers may append to one file, or write to one pipe, and lines are not
interleaved: one call appends to a file atomically, and to all else complete lines of at most
PIPE_BUF bytes are written at once, which is atomic for a pipe. Only longer lines may be split
there.

Neither a full disk nor a reader that has stopped reading may delay a request: no write waits. Lines
that cannot be written are kept up to a bound, then dropped and counted, which is logged once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import stat
import time
from json.encoder import encode_basestring_ascii as _quoted
from typing import Final, Protocol

from gateway.domain.identity import Identity
from gateway.domain.limits import Check, Decision
from gateway.domain.route import Route
from gateway.errors import Refusal
from gateway.files import open_chosen
from gateway.observe.logs import redact_path
from gateway.observe.usage_table import decision_of

_log = logging.getLogger(__name__)

#: Lines are written at the latest when there are this many bytes.
FLUSH_BYTES: Final = 64 * 1024
#: The most bytes that wait for a reader that does not read, in addition to the pipe's 64 KiB.
MOST_WAITING_BYTES: Final = 256 * 1024
#: How long `close` waits for such a reader.
CLOSE_S: Final = 1.0
_STDOUT: Final = 1
_UNREAD: Final = OSError(errno.EAGAIN, "its reader does not read")
#: Not readable by all: lines contain clients' addresses, keys' ids and paths.
_MODE: Final = 0o640


class Target(Protocol):
    """What a request asks for."""

    @property
    def path(self) -> str: ...


class Logged(Protocol):
    """The fields of `proxy.request.Request` that a line shows."""

    request_id: bytes
    client_ip: str
    method: str
    route: Route
    status: int
    identity: Identity | None
    check: Check | None
    decision: Decision | None
    refusal: Refusal | None
    bytes_in: int
    bytes_out: int
    upstream_name: str | None
    upstream_s: float | None

    @property
    def requested(self) -> Target: ...


def open_access_log(target: str) -> AccessLog | None:
    """Open the log. target: "off", "-" for standard output, or the path of a file to append to.

    Raises OSError if the file cannot be opened.
    """
    return None if target == "off" else AccessLog(target)


class AccessLog:
    """An open access log. Its owner calls `flush` every 100 ms or so, and `close`.

    dropped: lines that could not be written since it was opened
    """

    def __init__(self, target: str) -> None:
        self.dropped = 0
        self._target = target
        # Wait for the reader of a named pipe, like a shell.
        self._use(_open_stdout() if target == "-" else _open(target, wait=True))
        self._lines: list[str] = []
        self._collected_bytes = 0
        self._waiting = b""
        self._failing = False
        self._torn = False
        self._second = -1
        self._second_text = ""

    def write(
        self, request: Logged, status: int, time_us: int, duration_us: int, reason: str | None
    ) -> None:
        """Collect one line; about 3 µs. The query is removed, because it may contain secrets.

        status: as the line shows it; time_us: when the request came, Unix microseconds;
        reason: why it was refused or ended early; None: neither
        """
        second, micros = divmod(time_us, 1_000_000)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        path = request.requested.path
        if "?" in path:
            path = path.partition("?")[0]
        if "gwk" in path:
            path = redact_path(path)
        check, decision, refusal = request.check, request.decision, request.refusal
        limit = "null"
        if check is not None and decision is not None:
            limit = _quoted(check.limits[decision.governing].name)
        key = 'null, "account": null, "plan": null'
        if request.identity is not None:
            record = request.identity.record
            key = (
                f'{_quoted(record.id)}, "account": {_quoted(record.account)}, '
                f'"plan": {_quoted(record.plan)}'
            )
        is_admitted = refusal is None and request.status
        upstream_s = request.upstream_s
        line = (
            f'{{"time": "{self._second_text}.{micros:06d}Z", '
            f'"request_id": {_quoted(request.request_id.decode("ascii"))}, '
            f'"client_ip": {_quoted(request.client_ip)}, "method": {_quoted(request.method)}, '
            f'"path": {_quoted(path)}, "status": {status}, '
            f'"route": {_maybe(request.route.name or None)}, "key_id": {key}, '
            f'"decision": "{"admitted" if is_admitted else decision_of(refusal)}", '
            f'"limit": {limit}, "cost": {0 if check is None else check.cost}, '
            f'"bytes_in": {request.bytes_in}, "bytes_out": {request.bytes_out}, '
            f'"duration_ms": {duration_us / 1000}, '
            f'"upstream_ms": {"null" if upstream_s is None else int(upstream_s * 1e6) / 1000}, '
            f'"upstream": {_maybe(request.upstream_name)}, "reason": {_maybe(reason)}}}\n'
        )
        self._lines.append(line)
        self._collected_bytes += len(line)
        if self._collected_bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected lines. Never raises or waits; drops what cannot be written."""
        if not (self._lines or self._waiting):
            return
        if self._torn and not self._waiting:
            # End the line that was cut off by a full disk, so that it does not spoil the next one.
            self._waiting = b"\n"
        self._waiting += "".join(self._lines).encode("ascii")
        self._lines.clear()
        self._collected_bytes = 0
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
        """Open a new file of the same name, after the old one was renamed (rotation).

        If that fails, the old one stays in use.
        """
        if self._target == "-":
            return
        self.flush()
        try:
            fd = _open(self._target, wait=False)
        except OSError as error:
            _log.error("cannot reopen the access log: %s", error)
            return
        os.close(self._fd)
        self._use(fd)
        self._torn = False

    def close(self) -> None:
        """Write the remaining lines and close the file. Nothing may be written afterwards."""
        self.flush()
        give_up = time.monotonic() + CLOSE_S
        while self._waiting and self._is_writable(give_up - time.monotonic()):
            self.flush()
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


def _maybe(text: str | None) -> str:
    return "null" if text is None else _quoted(text)
