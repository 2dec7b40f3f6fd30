"""Logs are read whatever they contain: gzip, lines without end, bytes of any kind."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from gateway.cli.log_files import MOST_LINE, read_logs
from gateway.cli.log_formats import LogFormat
from gateway.cli.log_lines import Line

OWN = b'{"time": "2026-01-02T03:04:05Z", "method": "GET", "path": "/a"}\n'
NGINX = b'192.0.2.1 - - [02/Jan/2026:03:04:05 +0000] "GET /a HTTP/1.1" 200 1\n'


def read(path: Path, data: bytes) -> list[str]:
    """The place of each line, with "ok" or what is wrong with it."""
    path.write_bytes(data)
    found = read_logs([str(path)], LogFormat())
    return [
        f"{place.rpartition(':')[2]} {'ok' if isinstance(line, Line) else line}"
        for place, line in found
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (OWN * 2, ["1 ok", "2 ok"]),
        (b"\xef\xbb\xbf" + OWN.replace(b"\n", b"\r\n"), ["1 ok"]),
        (OWN.strip(), ["1 ok"]),
        (NGINX * 2, ["1 ok", "2 ok"]),
    ],
)
def test_files(tmp_path: Path, data: bytes, found: list[str], pack: type[bytes]) -> None:
    """Plain or gzip, each in its own format, with any line ends."""
    assert read(tmp_path / "log", pack(data)) == found


def test_the_format_is_that_of_the_first_line_that_can_be_read(tmp_path: Path) -> None:
    """Lines before it are faults, and so are later ones of another format."""
    found = read(tmp_path / "log", b"Jan 02 started\n\n" + NGINX + OWN + NGINX)
    assert [text.split()[:2] for text in found] == [
        ["1", "found"],
        ["2", "found"],
        ["3", "ok"],
        ["4", "found"],
        ["5", "ok"],
    ]


def test_several_logs_are_merged(tmp_path: Path) -> None:
    """By time, whatever the order of the files; what cannot be read stays after its line."""
    for name, seconds in (("a", (5, 7, 9)), ("b", (4, 7, 8))):
        lines = [OWN.replace(b"04:05Z", b"04:%02dZ" % second) for second in seconds]
        (tmp_path / name).write_bytes(lines[0] + b"x\n" + b"".join(lines[1:]))
    found = read_logs([str(tmp_path / "a"), str(tmp_path / "b")], LogFormat())
    assert [place.rpartition("/")[2] for place, _ in found] == [
        *("b:1", "b:2", "a:1", "a:2", "a:3", "b:3", "b:4", "a:4"),
    ]


def test_a_line_without_end(tmp_path: Path) -> None:
    """It is one fault, takes bounded memory, and the next line is read."""
    data = OWN + b"{" * (16 * MOST_LINE) + b"\n" + OWN
    path = tmp_path / "log"
    path.write_bytes(data)
    tracemalloc.start()
    found = list(read_logs([str(path)], LogFormat()))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [isinstance(line, Line) for _, line in found] == [True, False, True]
    assert found[1] == (f"{path}:2", f"found a longer line, expected at most {MOST_LINE} bytes")
    assert most < 6 * MOST_LINE


def test_any_bytes(tmp_path: Path) -> None:
    """Each line of them is a fault of its own."""
    data = OWN + bytes(range(256)) + b"\n" + '{"time": 1}'.encode("utf-16") + b"\n" + OWN
    found = read(tmp_path / "log", data)
    assert found[0] == "1 ok"
    assert found[-1].endswith(" ok")
    assert all(" found " in text and text.isascii() for text in found[1:-1])


@pytest.mark.parametrize("cut", [15, -8, -4])
def test_damaged_gzip(tmp_path: Path, cut: int) -> None:
    """A file that is still being written ends with a fault, after the lines that it has."""
    found = read(tmp_path / "log", gzip.compress(OWN)[:cut])
    assert found[-1].split(" found ")[1].startswith("damaged gzip data")
