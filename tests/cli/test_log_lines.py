"""The values of log lines: times in all forms, addresses, targets; and values that are none."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from gateway.cli import log_lines
from gateway.cli.log_lines import parse_any_time, parse_time, read_address, split_request

T = 1_767_323_045_000_006


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("2026-01-02T03:04:05Z", 1_767_323_045_000_000),
        ("2026-01-02T03:04:05.000006Z", T),
        ("2026-01-02T05:04:05.1+02:00", 1_767_323_045_100_000),
        ("2026-01-02T03:04:05.9999999Z", 1_767_323_045_999_999),
    ],
)
def test_times(text: str, time_us: int) -> None:
    """A time is read to the microsecond, in any time zone."""
    assert parse_time(text) == parse_any_time(text) == time_us


@pytest.mark.parametrize(
    ("value", "time_us"),
    [
        ("02/Jan/2026:05:04:05 +0200", 1_767_323_045_000_000),
        (1_767_323_045, 1_767_323_045_000_000),
        (Decimal("1767323045.000006"), T),
        ("1767323045.000006", T),
        (1_767_323_045_123, 1_767_323_045_123_000),
        (T, T),
        (T * 1000 + 999, T),
    ],
)
def test_times_of_other_servers(value: object, time_us: int) -> None:
    """nginx's form, and Unix times in any unit, exactly."""
    assert parse_any_time(value) == time_us


@pytest.mark.parametrize(
    "value",
    [
        *("", "soon", "02/Foo/2026:05:04:05 +0200", "02/Jan/2026:25:04:05 +0000", "-5"),
        *(0, -1, 10**30, True, None, [], {}, Decimal("NaN"), Decimal("1e99999"), 1e3),
        *("2026-01-02T03:04:05", "9" * 5000),
    ],
)
def test_no_times(value: object) -> None:
    """Anything else is named, in short."""
    with pytest.raises(ValueError, match=r"^time: found .*, expected a time such as") as raised:
        parse_any_time(value)
    assert len(str(raised.value)) < 160


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1:5342", "192.0.2.1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("unix:", "unix:"),
        ("-", "-"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    """Without their ports; what is no address stays."""
    assert read_address(text) == address


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("GET /a?q=1 HTTP/1.1", ("GET", "/a")),
        ("GET /a", ("GET", "/a")),
        ("GET http://h.example/a?x HTTP/1.1", ("GET", "/a")),
        ("GET http://h.example HTTP/1.1", ("GET", "/")),
        ("OPTIONS * HTTP/1.1", ("OPTIONS", "*")),
        ("GET /a b HTTP/1.1", ("GET", "/a b")),
        *((text, ("", "")) for text in ("", "-", "- - HTTP/1.1", "\x16\x03\x01", "G\x00T /a")),
    ],
)
def test_request_lines(text: str, request_: tuple[str, str]) -> None:
    """Method and path; nothing where it is no request line."""
    assert split_request(text) == request_


@pytest.mark.parametrize(
    ("read", "value", "found"),
    [
        (log_lines.read_status, "404", 404),
        (log_lines.read_status, 0, None),
        (log_lines.read_status, "-", None),
        (log_lines.read_cost, 7, 7),
        (log_lines.read_duration, Decimal("1.5"), 1500),
        (log_lines.read_duration, "2", 2000),
        (log_lines.read_duration, -1, None),
        (log_lines.read_duration, Decimal("Infinity"), None),
        (log_lines.read_decision, "failed", "failed"),
    ],
)
def test_values(read: Callable[[Any], Any], value: object, found: object) -> None:
    """Numbers may be texts where servers write them so."""
    assert read(value) == found


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *(
            (log_lines.read_status, value)
            for value in (99, 1000, "9999", True, "\uff12\uff10\uff10", [])
        ),
        *((log_lines.read_cost, value) for value in (-1, "1", True, Decimal("1.5"), 2**32)),
        *((log_lines.read_decision, value) for value in (1, "ADMITTED", [])),
    ],
)
def test_wrong_values(read: Callable[[Any], Any], value: object) -> None:
    """The message says what was found and what was expected."""
    with pytest.raises(ValueError, match=r": found .*, expected "):
        read(value)


def test_decisions_by_status() -> None:
    """429 is a limit's; 401, and what could not be read, were refused; all else was served."""
    statuses = (None, 200, 404, 429, 401)
    found = [log_lines.decision_by(status, is_readable=True) for status in statuses]
    assert found == [None, "admitted", "admitted", "limited", "refused"]
    assert log_lines.decision_by(400, is_readable=False) == "refused"
