"""The access log: a line for each exchange, as the policy's `access_log` says.

Lines are collected in memory and written together, because a system call for each would cost more
than the line. `access_lines` formats them, `access_targets` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Final

from gateway.domain.access_log import AccessLogFormat
from gateway.observe.access_fields import Logged
from gateway.observe.access_lines import compile_format
from gateway.observe.access_targets import open_target

#: Lines are written at the latest when there are this many bytes.
FLUSH_BYTES: Final = 64 * 1024


def open_access_log(target: str) -> AccessLog | None:
    """Open the log. target: "off", "-" for standard output, a path, "syslog:…" or "udp://…".

    Raises OSError if it cannot be opened, ValueError if the target is none of these.
    """
    return None if target == "off" else AccessLog(target)


class AccessLog:
    """An open access log. Its owner calls `flush` every 100 ms or so, and `close`."""

    def __init__(self, target: str, *, draw: Callable[[], float] = random) -> None:
        self._target = open_target(target)
        self._draw = draw
        self._lines: list[str] = []
        self._collected_bytes = 0
        self.use(AccessLogFormat())

    @property
    def dropped(self) -> int:
        """Lines that could not be written since it was opened."""
        return self._target.dropped

    def use(self, form: AccessLogFormat) -> None:
        """Write lines in this format from now on."""
        self._share = form.sample
        self._format = compile_format(form)

    def write(
        self,
        request: Logged,
        status: int,
        time_us: int,
        duration_us: int,
        reason: str | None,
    ) -> None:
        """Collect one line; about 3 µs.

        status: as the line shows it; time_us: when the request came, Unix microseconds;
        reason: why it was refused or ended early; None: neither
        """
        share = self._share
        if share < 1:
            # Only what went well is left out. A request without a status was not answered.
            if reason is not None or status >= 500 or not request.status:
                share = 1.0
            elif self._draw() >= share:
                return
        line = self._format(request, status, time_us, duration_us, reason, share)
        self._lines.append(line)
        self._collected_bytes += len(line)
        if self._collected_bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected lines. Never raises or waits; drops what cannot be written."""
        lines, self._lines = self._lines, []
        self._collected_bytes = 0
        self._target.write(lines)

    def reopen(self) -> None:
        """Open a new file of the same name, after the old one was renamed (rotation).

        If that fails, the old one stays in use. A socket is opened anew.
        """
        self.flush()
        self._target.reopen()

    def close(self) -> None:
        """Write the remaining lines and close the file. Nothing may be written afterwards."""
        self.flush()
        self._target.close()
