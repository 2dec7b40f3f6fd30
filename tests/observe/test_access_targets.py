"""Where lines of the access log go: whatever disks, readers and sockets do, nothing waits."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import resource
import select
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.observe import access_targets
from gateway.observe.access import AccessLog, open_access_log
from gateway.observe.access_targets import MOST_WAITING_BYTES, DatagramTarget, open_target
from tests.kit.access import lines, opened, write_line


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    """A restart keeps the lines of an earlier process."""
    path = tmp_path / "access.log"
    for number in ("1", "2"):
        with opened(path) as log:
            write_line(log, request_id=number)
    assert [line["request_id"] for line in lines(path)] == ["1", "2"]


def test_others_may_not_read_it(tmp_path: Path) -> None:
    """The file is created with mode 0640, whatever the umask is."""
    path = tmp_path / "access.log"
    umask = os.umask(0)
    try:
        with opened(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(umask)


def test_a_link_that_others_may_have_put_there_is_not_followed(tmp_path: Path) -> None:
    """Links in a folder that all may write are not followed; those in the gateway's own are."""
    (tmp_path / "own").write_bytes(b"precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "access.log").symlink_to(tmp_path / "own")
    with opened(shared / "access.log") as log:
        write_line(log)
    found = (tmp_path / "own").read_bytes()
    assert found.startswith(b"precious{")
    shared.chmod(0o1777)
    with pytest.raises(OSError, match="is a link, which is not followed"):
        open_access_log(str(shared / "access.log"))
    assert (tmp_path / "own").read_bytes() == found


def test_a_dash_is_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines go to standard output, which stays open when the log is closed or reopened."""
    log = open_access_log("-")
    assert log is not None
    write_line(log, request_id="1")
    log.reopen()
    write_line(log, request_id="2")
    log.close()
    os.write(1, b"still open\n")
    first, second, last = capfd.readouterr().out.splitlines()
    assert [json.loads(each)["request_id"] for each in (first, second)] == ["1", "2"]
    assert last == "still open"


def test_rotation_continues_in_a_new_file(tmp_path: Path) -> None:
    """Buffered lines are written to the old file, later ones to the new one."""
    path, old = tmp_path / "access.log", tmp_path / "access.log.1"
    with opened(path) as log:
        write_line(log, request_id="1")
        path.rename(old)
        log.reopen()
        write_line(log, request_id="2")
    assert [line["request_id"] for line in lines(old)] == ["1"]
    assert [line["request_id"] for line in lines(path)] == ["2"]


def test_a_rotation_that_fails_keeps_the_old_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines are still written to the renamed file, and the process's log says why."""
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    with opened(folder / "access.log") as log:
        folder.rename(moved)
        log.reopen()
        write_line(log, request_id="2")
    assert [line["request_id"] for line in lines(moved / "access.log")] == ["2"]
    assert len(caplog.records) == 1
    assert "cannot reopen the access log" in caplog.text


class Disk:
    """Replaces `os.write`: takes up to `room` bytes in all, in pieces, then is full."""

    def __init__(self, room: int, piece: int = 10**9) -> None:
        self.room = room
        self.piece = piece
        self.held = b""

    def write(self, _fd: int, data: bytes) -> int:
        taken = data[: min(self.room, self.piece)]
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(taken)
        self.held += taken
        return len(taken)


def test_a_write_that_takes_a_part_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a partial write the rest follows; nothing is lost or written twice."""
    disk = Disk(room=10**6, piece=100)
    with opened(tmp_path / "access.log") as log:
        monkeypatch.setattr("gateway.observe.access_targets.os.write", disk.write)
        for number in ("1", "2", "3"):
            write_line(log, request_id=number)
        log.flush()
        monkeypatch.undo()
        assert log.dropped == 0
    held = [json.loads(line)["request_id"] for line in disk.held.splitlines()]
    assert held == ["1", "2", "3"]


def test_a_full_disk_costs_lines_and_no_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines are dropped and counted, with one error per failure; later ones are written again."""
    disk = Disk(room=0)
    with opened(tmp_path / "access.log") as log:
        monkeypatch.setattr("gateway.observe.access_targets.os.write", disk.write)
        for _ in range(3):
            write_line(log)
            write_line(log)
            log.flush()
        assert log.dropped == 6
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "No space left on device" in caplog.text
        disk.room = 10**6
        write_line(log, request_id="again")
        log.flush()
        disk.room = 0
        write_line(log)
        log.flush()
        assert log.dropped == 7
        assert len(caplog.records) == 2
        monkeypatch.undo()
    assert [json.loads(line)["request_id"] for line in disk.held.splitlines()] == ["again"]


def test_a_torn_line_takes_no_other_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a line that a full disk cut short, the next one starts on a new line."""
    disk = Disk(room=100)
    with opened(tmp_path / "access.log") as log:
        monkeypatch.setattr("gateway.observe.access_targets.os.write", disk.write)
        for _ in range(2):
            write_line(log, request_id="lost")
            log.flush()
        disk.room = 10**6
        for number in ("1", "2"):
            write_line(log, request_id=number)
            log.flush()
        assert log.dropped == 2
        monkeypatch.undo()
    torn, *whole = disk.held.splitlines()
    assert len(torn) == 100
    assert [json.loads(line)["request_id"] for line in whole] == ["1", "2"]


def test_a_pipe_takes_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write has whole lines of at most PIPE_BUF bytes, so that workers' lines do not mix."""
    pieces: list[bytes] = []

    def write(_fd: int, data: bytes) -> int:
        pieces.append(data)
        return len(data)

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with opened(pipe) as log:
        monkeypatch.setattr("gateway.observe.access_targets.os.write", write)
        for number in range(100):
            write_line(log, request_id=str(number))
        write_line(log, request_id="long", path="/" + "x" * 2 * select.PIPE_BUF)
        write_line(log, request_id="last")
        log.flush()
        monkeypatch.undo()
    os.close(reader)
    (longest,) = [piece for piece in pieces if len(piece) > select.PIPE_BUF]
    assert [json.loads(line)["request_id"] for line in longest.splitlines()] == ["long"]
    assert all(piece.endswith(b"\n") for piece in pieces)
    # Several lines share a call.
    assert len(pieces) < 30
    ids = [json.loads(line)["request_id"] for line in b"".join(pieces).splitlines()]
    assert ids == [*map(str, range(100)), "long", "last"]


def test_a_reader_that_stalls_costs_lines_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines that a full pipe does not take are kept up to a bound, then dropped and counted."""
    monkeypatch.setattr(access_targets, "CLOSE_S", 0.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    written = 0
    with opened(pipe) as log:
        while not log.dropped:
            write_line(log, request_id=str(written := written + 1))
        assert written * 600 > access_targets.MOST_WAITING_BYTES
        for _ in range(2_000):
            write_line(log, request_id=str(written := written + 1))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "its reader does not read" in caplog.text
    held = [json.loads(line)["request_id"] for line in _drained(reader).splitlines()]
    os.close(reader)
    assert held == [str(number) for number in range(1, len(held) + 1)]
    assert len(held) + log.dropped == written


def test_a_reader_that_is_slow_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader gets all lines; closing the log waits for it."""
    monkeypatch.setattr(access_targets, "CLOSE_S", 60.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    held: list[bytes] = []

    def read_to_the_end() -> None:
        while piece := os.read(reader, 65_536):
            held.append(piece)

    late = threading.Thread(target=read_to_the_end)
    with opened(pipe) as log:
        for number in range(400):
            write_line(log, request_id=str(number))
        for _ in range(2):
            log.flush()
            held.append(_drained(reader))
        for number in range(400, 800):
            write_line(log, request_id=str(number))
        os.set_blocking(reader, True)
        late.start()
    late.join(20)
    os.close(reader)
    assert log.dropped == 0
    ids = [json.loads(line)["request_id"] for line in b"".join(held).splitlines()]
    assert ids == [*map(str, range(800))]


def test_a_pipe_without_a_reader_is_not_opened_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rotation does not wait for a reader: the old descriptor stays in use."""
    pipe, moved = tmp_path / "pipe", tmp_path / "moved"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with opened(pipe) as log:
        pipe.rename(moved)
        os.mkfifo(pipe)
        log.reopen()
        write_line(log, request_id="1")
    assert "cannot reopen the access log" in caplog.text
    assert json.loads(_drained(reader))["request_id"] == "1"
    os.close(reader)


def test_standard_output_may_be_an_unread_pipe() -> None:
    """Writing does not block, and the pipe's mode is unchanged for other writers."""
    code = (
        "from gateway.observe.access import open_access_log\n"
        "from tests.kit.access import write_line\n"
        "import os\n"
        "log = open_access_log('-')\n"
        "while not log.dropped: write_line(log)\n"
        "os.write(2, str(os.get_blocking(1)).encode())\n"
        "os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read().endswith("True")


def _drained(reader: int) -> bytes:
    """The bytes in the pipe now."""
    held = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(reader, 65_536):
            held += piece
    return held


def test_a_file_takes_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines are appended by one call, also after a rotation."""
    sizes: list[int] = []
    really_write = os.write

    def write(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return really_write(fd, data)

    monkeypatch.setattr("gateway.observe.access_targets.os.write", write)
    with opened(tmp_path / "access.log") as log:
        for _ in range(2):
            for _ in range(50):
                write_line(log)
            log.flush()
            log.reopen()
    assert len(sizes) == 2
    assert min(sizes) > select.PIPE_BUF


# -- sockets ---------------------------------------------------------------------------------------


@contextmanager
def receiver(family: int, address: str | tuple[Any, ...]) -> Iterator[socket.socket]:
    """A bound socket that reads datagrams."""
    with socket.socket(family, socket.SOCK_DGRAM) as bound:
        bound.settimeout(20)
        bound.bind(address)
        yield bound


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_udp_gets_one_line_a_datagram(host: str) -> None:
    """Each datagram is one line, without its end."""
    # Where localhost has two addresses, the first may be that of IPv6.
    family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
    with receiver(family, address) as bound:
        log = AccessLog(f"udp://{host}:{bound.getsockname()[1]}")
        for number in ("1", "2"):
            write_line(log, request_id=number)
        log.close()
        got = [bound.recv(65_536) for _ in range(2)]
    assert [json.loads(each)["request_id"] for each in got] == ["1", "2"]
    assert not any(each.endswith(b"\n") for each in got)
    assert log.dropped == 0


SYSLOG = re.compile(
    rb"<190>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [!-~]{1,255} gateway (\d+) - - (\{.*\})", re.DOTALL
)


def test_syslog_over_udp_and_a_unix_socket(tmp_path: Path) -> None:
    """RFC 5424, facility local7, severity informational, and the line as the message."""
    path = str(tmp_path / "log")
    with (
        receiver(socket.AF_UNIX, path) as local,
        receiver(socket.AF_INET, ("127.0.0.1", 0)) as remote,
    ):
        for target, bound in (
            (f"syslog:{path}", local),
            (f"syslog:udp://127.0.0.1:{remote.getsockname()[1]}", remote),
        ):
            log = AccessLog(target)
            write_line(log)
            log.close()
            found = SYSLOG.fullmatch(bound.recv(65_536))
            assert found is not None
            assert int(found[1]) == os.getpid()
            assert json.loads(found[2])["request_id"] == "req-1"


def test_a_restarted_syslog_is_found_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While nobody listens, lines are dropped and counted, with one error; then all is well."""
    path = tmp_path / "log"
    with receiver(socket.AF_UNIX, str(path)):
        log = AccessLog(f"syslog:{path}")
        write_line(log, request_id="1")
        log.flush()
    for number in ("2", "3"):
        write_line(log, request_id=number)
        log.flush()
    assert log.dropped == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "cannot send the access log; dropping lines" in caplog.text
    path.unlink()
    with receiver(socket.AF_UNIX, str(path)) as bound:
        write_line(log, request_id="4")
        log.close()
        assert b'"request_id": "4"' in bound.recv(65_536)
    assert log.dropped == 2


def test_a_socket_that_nobody_reads_costs_lines_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines that its buffer does not take are kept up to a bound, then dropped and counted."""
    monkeypatch.setattr(access_targets, "CLOSE_S", 0.0)
    path, written = str(tmp_path / "log"), 0
    with receiver(socket.AF_UNIX, path) as bound:
        log = AccessLog(f"syslog:{path}")
        while not log.dropped:
            write_line(log, request_id=str(written := written + 1))
        for _ in range(1_000):
            write_line(log, request_id=str(written := written + 1))
        log.close()
        bound.setblocking(False)
        got = 0
        with contextlib.suppress(BlockingIOError):
            while bound.recv(65_536):
                got += 1
    assert "its reader does not read" in caplog.text
    assert got + log.dropped == written


def test_a_full_socket_with_a_high_descriptor_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is reopened by a worker with thousands of connections has such a descriptor."""
    monkeypatch.setattr(access_targets, "CLOSE_S", 0.05)
    path = str(tmp_path / "log")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2_048, hard), hard))
    try:
        with receiver(socket.AF_UNIX, path):
            target = DatagramTarget(socket.AF_UNIX, path, is_syslog=False)
            high = fcntl.fcntl(target._socket, fcntl.F_DUPFD_CLOEXEC, 1_024)
            target._socket.close()
            target._socket = socket.socket(fileno=high)
            while not target._waiting:
                target.write(["x\n"])
            target.close()
            assert target.dropped
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_line_that_fits_no_datagram_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """It costs itself only."""
    with receiver(socket.AF_INET, ("127.0.0.1", 0)) as bound:
        log = AccessLog(f"udp://127.0.0.1:{bound.getsockname()[1]}")
        write_line(log, path="/" + "x" * 70_000)
        write_line(log, request_id="next")
        log.close()
        assert json.loads(bound.recv(65_536))["request_id"] == "next"
    assert log.dropped == 1
    assert "Message too long" in caplog.text


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("syslog:tcp://a:514", "found 'syslog:tcp://a:514', expected a path, -, off, syslog:, sys"),
        ("syslog:dev/log", "expected a path, -, off, syslog:, syslog:/PATH, syslog:udp://HOST"),
        ("udp://a", "found 'udp://a', expected udp://HOST:PORT, with a port from 1 to 65535"),
        ("udp://a:0", "expected udp://HOST:PORT, with a port from 1 to 65535"),
        ("udp://a:65536", "expected udp://HOST:PORT, with a port from 1 to 65535"),
        ("udp:a:1", "expected udp://HOST:PORT"),
        ("syslog:udp://a b", "expected udp://HOST:PORT"),
    ],
)
def test_what_is_no_target(target: str, words: str) -> None:
    """The error says what was found and expected."""
    with pytest.raises(ValueError, match=re.escape(words)):
        open_target(target)


def test_a_syslog_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """At the start a missing socket is an error that names it."""
    with pytest.raises(OSError, match=re.escape(f"{tmp_path}/absent")):
        open_target(f"syslog:{tmp_path}/absent")


def test_lines_that_are_lost_are_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """Every other datagram to a port that nobody reads is an error, also after a good one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        target = open_target(f"udp://127.0.0.1:{bound.getsockname()[1]}")
    written = 0
    while target.dropped < 5 and written < 1_000:
        target.write(["line\n"])
        written += 1
    assert target.dropped == 5
    assert target.dropped < written
    assert [record.message for record in caplog.records] == [
        "cannot send the access log; dropping lines: Connection refused"
    ]
    target.close()


def test_a_socket_that_stays_full_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines wait, are dropped, and wait again: that is one fault, not many."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(str(tmp_path / "log"))
        target = open_target(f"syslog:{tmp_path / 'log'}")
        lines = ["x" * 1000 + "\n"] * 50
        for _ in range(100):
            target.write(lines)
        assert target.dropped > 2 * MOST_WAITING_BYTES / 1000
        target.close()
    assert len(caplog.records) == 1
