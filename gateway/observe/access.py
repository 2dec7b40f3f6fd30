"""The access log: one JSON object for each exchange, in the order and with the names that
`gateway simulate` reads.

Lines are collected in memory and written together, because a system call for each would cost more
than the line. A disk that fails must not fail requests: lines that cannot be written are dropped
and counted, and the gateway's own log says so once.
"""

from __future__ import annotations

import logging
import os
import time
from json.encoder import encode_basestring_ascii as _quoted
from typing import Final

from gateway.observe.logs import redact

_log = logging.getLogger(__name__)

#: Written at the latest when this much has been collected.
FLUSH_BYTES: Final = 64 * 1024
_STDOUT: Final = 1
#: The owner writes, the group may read along: lines say who asked for what, from where.
_MODE: Final = 0o640


def open_access_log(target: str) -> AccessLog | None:
    """target: "off", "-" for standard output, or a file's path, which is appended to.

    Raises OSError where the file cannot be opened.
    """
    return None if target == "off" else AccessLog(target)


class AccessLog:
    """An open access log. Whoever owns it calls `flush` every 100 ms or so, and `close`.

    dropped: lines that could not be written since it was opened
    """

    def __init__(self, target: str) -> None:
        self.dropped = 0
        self._target = target
        self._fd = _open(target)
        self._lines: list[str] = []
        self._collected_bytes = 0
        self._failing = False
        self._torn = False
        self._second = -1
        self._second_text = ""

    def write(
        self,
        time_us: int,
        request_id: str,
        client_ip: str,
        method: str,
        path: str,
        status: int,
        route: str | None,
        key_id: str | None,
        account: str | None,
        plan: str | None,
        decision: str,
        limit: str | None,
        cost: int,
        bytes_in: int,
        bytes_out: int,
        duration_us: int,
        upstream_us: int | None,
        upstream: str | None,
        reason: str | None,
    ) -> None:
        """Collect one line; about 2.6 µs. A query is cut off the path, for secrets travel there."""
        second, micros = divmod(time_us, 1_000_000)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        if "?" in path:
            path = path.partition("?")[0]
        if "gwk" in path:
            path = redact(path)
        line = (
            f'{{"time": "{self._second_text}.{micros:06d}Z", "request_id": {_quoted(request_id)}, '
            f'"client_ip": {_quoted(client_ip)}, "method": {_quoted(method)}, '
            f'"path": {_quoted(path)}, "status": {status}, "route": {_maybe(route)}, '
            f'"key_id": {_maybe(key_id)}, "account": {_maybe(account)}, "plan": {_maybe(plan)}, '
            f'"decision": {_quoted(decision)}, "limit": {_maybe(limit)}, "cost": {cost}, '
            f'"bytes_in": {bytes_in}, "bytes_out": {bytes_out}, '
            f'"duration_ms": {duration_us / 1000}, '
            f'"upstream_ms": {"null" if upstream_us is None else upstream_us / 1000}, '
            f'"upstream": {_maybe(upstream)}, "reason": {_maybe(reason)}}}\n'
        )
        self._lines.append(line)
        self._collected_bytes += len(line)
        if self._collected_bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was collected. Never raises: what cannot be written is dropped."""
        if not self._lines:
            return
        # A line that was cut short by a full disk must not take the next one along.
        rest = ("\n" if self._torn else "").encode() + "".join(self._lines).encode("ascii")
        self._lines.clear()
        self._collected_bytes = 0
        try:
            while rest:
                written = os.write(self._fd, rest)
                self._torn = rest[written - 1 : written] != b"\n"
                rest = rest[written:]
        except OSError as error:
            self._drop(rest, error)
        else:
            self._failing = False

    def reopen(self) -> None:
        """Go on in a new file of the same name, after the old one was moved away (rotation).

        Where that fails, the old one stays in use.
        """
        if self._target == "-":
            return
        self.flush()
        try:
            fd = _open(self._target)
        except OSError as error:
            _log.error("the access log cannot be opened anew: %s", error)
            return
        os.close(self._fd)
        self._fd = fd
        self._torn = False

    def close(self) -> None:
        """Write what is left and let go of the file. Nothing may be written afterwards."""
        self.flush()
        if self._target != "-":
            os.close(self._fd)

    def _drop(self, rest: bytes, error: OSError) -> None:
        # A line end that leads was only to close a torn line, which has been counted.
        self.dropped += rest.count(b"\n") - rest.startswith(b"\n")
        if not self._failing:
            self._failing = True
            _log.error("the access log cannot be written, lines are dropped: %s", error)


def _open(target: str) -> int:
    if target == "-":
        return _STDOUT
    return os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)


def _maybe(text: str | None) -> str:
    return "null" if text is None else _quoted(text)
