"""Reads access logs line by line, whatever they contain: plain or gzip files, or standard input.

Each file's format is that of its first line that can be read. A longer line than any server writes
is skipped in pieces, so that no file takes more memory than that.
"""

from __future__ import annotations

import gzip
import heapq
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from operator import itemgetter
from typing import IO, Final

import click

from gateway.cli.log_formats import LogFormat
from gateway.cli.log_lines import Line

#: The longest line that is read: a path of 8 KiB has at most 48 KiB in JSON.
MOST_LINE: Final = 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"

#: A line's place, "access.log:17", and the line, or why it cannot be read.
Placed = tuple[str, Line | str]


def read_logs(logs: Sequence[str], log_format: LogFormat) -> Iterator[Placed]:
    """Each line of the files; "-" is standard input. Raises OSError.

    Of several files, the line with the earliest time is next: those of several gateways overlap.
    """
    with ExitStack() as stack:
        files = [(log, stack.enter_context(click.open_file(log, "rb"))) for log in logs]
        parts = [_timed(_read_log(log, file, log_format)) for log, file in files]
        for _, placed in heapq.merge(*parts, key=itemgetter(0)):
            yield placed


def _timed(lines: Iterator[Placed]) -> Iterator[tuple[int, Placed]]:
    """Each line with its time; one that cannot be read has that of the line before it."""
    time_us = 0
    for placed in lines:
        line = placed[1]
        if isinstance(line, Line):
            time_us = line.time_us
        yield time_us, placed


def _read_log(log: str, file: IO[bytes], log_format: LogFormat) -> Iterator[Placed]:
    reader = None if log_format.name == "auto" else log_format.reader()
    number = 0
    try:
        for number, raw in enumerate(_lines(_unzipped(file)), 1):
            found: Line | str
            try:
                if len(raw) > MOST_LINE:
                    raise ValueError(f"found a longer line, expected at most {MOST_LINE} bytes")
                if reader is None:
                    reader = log_format.detected(raw).reader()
                found = reader(raw)
            except ValueError as error:
                found = str(error)
            yield f"{log}:{number}", found
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield f"{log}:{number + 1}", f"found damaged gzip data ({error}), expected the whole file"


def _unzipped(file: IO[bytes]) -> io.BufferedIOBase:
    """The file's contents, unpacked if they begin like gzip."""
    start = file.read(len(_GZIP))
    whole = _Rejoined(start, file)
    return (
        gzip.GzipFile(fileobj=io.BufferedReader(whole))
        if start == _GZIP
        else io.BufferedReader(whole)
    )


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were read already; standard input cannot be rewound."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start = start
        # A pipe's data are read as they come.
        self._read = getattr(rest, "read1", rest.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._start:
            data, self._start = self._start[: len(buffer)], self._start[len(buffer) :]
        else:
            data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    """The lines without their ends; of one that is too long its first MOST_LINE + 1 bytes."""
    is_first = True
    while line := file.readline(MOST_LINE + 2):
        if len(line) > MOST_LINE + 1 and not line.endswith(b"\n"):
            while (more := file.readline(MOST_LINE)) and not more.endswith(b"\n"):
                pass
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line.removeprefix(_BOM) if is_first else line
        is_first = False
