"""The access log has a line per exchange, whatever its texts are and whatever the disk does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe import access
from gateway.observe.access import AccessLog, open_access_log
from tests.kit.access import write_line

FIELDS = [
    *("time", "request_id", "client_ip", "method", "path", "status", "route", "key_id", "account"),
    *("plan", "decision", "limit", "cost", "bytes_in", "bytes_out", "duration_ms", "upstream_ms"),
    *("upstream", "reason"),
]


@contextmanager
def opened(path: Path) -> Iterator[AccessLog]:
    log = open_access_log(str(path))
    assert log is not None
    yield log
    log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def written(tmp_path: Path, *found: dict[str, Any]) -> list[dict[str, Any]]:
    """The log's lines after these."""
    path = tmp_path / "access.log"
    path.unlink(missing_ok=True)
    with opened(path) as log:
        for line in found:
            write_line(log, **line)
    return lines(path)


def test_a_line_has_the_fixed_fields_in_their_order(tmp_path: Path) -> None:
    """Names, order, units and types of the fields are fixed."""
    (line,) = written(tmp_path, {})
    assert list(line) == FIELDS
    assert line == {
        "time": "2023-11-14T22:13:20.000042Z",
        "request_id": "req-1",
        "client_ip": "203.0.113.7",
        "method": "GET",
        "path": "/api/search/users",
        "status": 200,
        "route": "search",
        "key_id": "7h3k9m2p4q6r",
        "account": "acme",
        "plan": "free",
        "decision": "admitted",
        "limit": "search",
        "cost": 1,
        "bytes_in": 0,
        "bytes_out": 512,
        "duration_ms": 12.345,
        "upstream_ms": 12.001,
        "upstream": "api",
        "reason": None,
    }


def test_missing_values_are_null(tmp_path: Path) -> None:
    """A missing key, route or upstream is null."""
    absent = dict.fromkeys(
        ("route", "key_id", "account", "plan", "limit", "upstream_us", "upstream")
    )
    (line,) = written(tmp_path, dict(**absent, reason="key_missing"))
    assert list(line) == FIELDS
    nulls = {name for name, found in line.items() if found is None}
    assert nulls == {"route", "key_id", "account", "plan", "limit", "upstream_ms", "upstream"}
    assert line["reason"] == "key_missing"


@given(times=st.lists(st.integers(0, 4_102_444_800_000_000), min_size=1, max_size=5))
def test_times_are_exact(tmp_path_factory: pytest.TempPathFactory, times: list[int]) -> None:
    """Every microsecond survives, in whatever order times come (clocks step back)."""
    path = tmp_path_factory.mktemp("times")
    found = written(path, *({"time_us": each} for each in times))
    for time_us, line in zip(times, found, strict=True):
        expected = datetime.fromtimestamp(time_us // 1_000_000, UTC)
        assert line["time"] == f"{expected:%Y-%m-%dT%H:%M:%S}.{time_us % 1_000_000:06d}Z"


TEXTS = ("client_ip", "method", "route", "key_id", "account", "plan", "limit")


@given(
    changes=st.fixed_dictionaries(
        {}, optional={name: st.text(min_size=1) for name in (*TEXTS, "upstream")}
    ),
    path=st.text().filter(lambda path: "?" not in path and "gwk" not in path.lower()),
)
def test_any_text_stays_in_its_field(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str], path: str
) -> None:
    """Quotes, line ends and control characters are escaped: one line, the same text back."""
    file = tmp_path_factory.mktemp("texts") / "access.log"
    with opened(file) as log:
        write_line(log, **changes, path=path)
    raw = file.read_bytes()
    assert raw.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in raw[:-1])
    line = json.loads(raw)
    assert {name: line[name] for name in changes} == changes
    assert line["path"] == path


def test_a_query_is_not_logged(tmp_path: Path) -> None:
    """Clients put secrets into queries; the log has the path only."""
    (line,) = written(tmp_path, {"path": "/api/search/x?token=hunter2&a=/b?c"})
    assert line["path"] == "/api/search/x"
    assert "hunter2" not in json.dumps(line)


@pytest.mark.parametrize("prefix", ["gwk_", "gwk%5F", "gwk%5f"])
def test_a_key_in_the_path_is_not_logged(tmp_path: Path, prefix: str) -> None:
    """A key that a client puts into the path is not logged."""
    secret = "production_7h3k9m2p4q6r_" + "Ab1" * 12
    (line,) = written(tmp_path, {"path": f"/v1/{prefix}{secret}/x"})
    assert line["path"] == "/v1/gwk_[redacted]/x"


def test_lines_wait_for_a_flush(tmp_path: Path) -> None:
    """Nothing is written before a flush, which writes all lines once."""
    path = tmp_path / "access.log"
    with opened(path) as log:
        write_line(log, request_id="1")
        write_line(log, request_id="2")
        assert path.read_bytes() == b""
        log.flush()
        log.flush()
        assert [line["request_id"] for line in lines(path)] == ["1", "2"]
        write_line(log, request_id="3")
    assert [line["request_id"] for line in lines(path)] == ["1", "2", "3"]


def test_a_full_buffer_is_written_unasked(tmp_path: Path) -> None:
    """Memory stays bounded if requests come faster than flushes."""
    path = tmp_path / "access.log"
    with opened(path) as log:
        sizes = []
        for _ in range(2000):
            write_line(log)
            sizes.append(path.stat().st_size)
        size_of_line = len(path.read_bytes().splitlines()[0]) + 1
        waited = sizes.index(next(filter(None, sizes))) + 1
        assert (waited - 1) * size_of_line < access.FLUSH_BYTES <= waited * size_of_line
    assert len(lines(path)) == 2000


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


def test_off_is_no_log() -> None:
    """An access log that is off is None."""
    assert open_access_log("off") is None


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """Opening an unusable file raises an error, which the command prints."""
    with pytest.raises(FileNotFoundError):
        open_access_log(str(tmp_path / "absent" / "access.log"))


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
        monkeypatch.setattr("gateway.observe.access.os.write", disk.write)
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
        monkeypatch.setattr("gateway.observe.access.os.write", disk.write)
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
        monkeypatch.setattr("gateway.observe.access.os.write", disk.write)
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
        monkeypatch.setattr("gateway.observe.access.os.write", write)
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
    monkeypatch.setattr(access, "CLOSE_S", 0.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    written = 0
    with opened(pipe) as log:
        while not log.dropped:
            write_line(log, request_id=str(written := written + 1))
        assert written * 400 > access.MOST_WAITING_BYTES
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
    monkeypatch.setattr(access, "CLOSE_S", 60.0)
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

    monkeypatch.setattr("gateway.observe.access.os.write", write)
    with opened(tmp_path / "access.log") as log:
        for _ in range(2):
            for _ in range(50):
                write_line(log)
            log.flush()
            log.reopen()
    assert len(sizes) == 2
    assert min(sizes) > select.PIPE_BUF
