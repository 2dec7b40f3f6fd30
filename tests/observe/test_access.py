"""The access log collects lines, leaves out a share of what went well, and never waits."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.access_log import AccessLogFormat
from gateway.errors import RATE_LIMITED
from gateway.observe import access
from gateway.observe.access import AccessLog, open_access_log
from tests.kit.access import lines, opened, write_line


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


def test_off_is_no_log() -> None:
    """An access log that is off is None."""
    assert open_access_log("off") is None


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """Opening an unusable file raises an error, which the command prints."""
    with pytest.raises(FileNotFoundError):
        open_access_log(str(tmp_path / "absent" / "access.log"))


def statuses(path: Path) -> list[int]:
    return [line["status"] for line in lines(path)]


def test_a_share_of_what_went_well_is_written(tmp_path: Path) -> None:
    """`sample` leaves out admitted requests at random; the lines say the share."""
    path, drawn = tmp_path / "access.log", count()
    log = AccessLog(str(path), draw=lambda: next(drawn) % 10 / 10)
    log.use(AccessLogFormat(sample=0.2))
    for number in range(50):
        write_line(log, request_id=str(number))
    log.close()
    found = lines(path)
    assert [line["request_id"] for line in found] == [
        str(number) for number in range(50) if number % 10 < 2
    ]
    assert {line["sample"] for line in found} == {0.2}


@pytest.mark.parametrize(
    "line",
    [
        {"status": 503},
        {"status": 599},
        {"status": 429, "refusal": RATE_LIMITED, "reason": "rate_limited"},
        {"status": 200, "reason": "upstream_truncated"},
        {"status": 0, "reason": "client_gone"},
    ],
)
def test_what_went_wrong_is_always_written(tmp_path: Path, line: dict[str, Any]) -> None:
    """Refusals, 5xx and requests that were cut off are not sampled: their lines stand for one."""
    path = tmp_path / "access.log"
    log = AccessLog(str(path), draw=lambda: 0.999)
    log.use(AccessLogFormat(sample=0.0001))
    write_line(log, **line)
    write_line(log, status=404)
    log.close()
    (found,) = lines(path)
    assert found["status"] == line["status"]
    assert found["sample"] == 1


def test_a_format_may_change_at_any_time(tmp_path: Path) -> None:
    """A reload changes the next lines; those before keep their format."""
    path = tmp_path / "access.log"
    with opened(path) as log:
        write_line(log)
        log.use(AccessLogFormat(fields=("status",)))
        write_line(log)
        log.use(AccessLogFormat("{status} {path}"))
        write_line(log)
    first, second, third = path.read_text().splitlines()
    assert first.startswith('{"time": ')
    assert second == '{"status": 200}'
    assert third == "200 /api/search/users"
