"""The lines of the access log: JSON, combined and templates, whatever their texts are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.log_formats import LogFormat, parse_combined, parse_gateway
from gateway.domain.access_log import DEFAULT_FIELDS, AccessLogFormat
from gateway.domain.access_log import FIELDS as ALL_FIELDS
from gateway.observe.access_lines import compile_format
from tests.kit.access import LINE, lines, logged, opened, write_line

FIELDS = [
    *("time", "request_id", "client_ip", "method", "path", "status", "route", "key_id", "account"),
    *("plan", "decision", "limit", "cost", "bytes_in", "bytes_out", "duration_ms", "upstream_ms"),
    *("upstream", "reason", "host", "protocol", "server", "remaining", "gate_ms", "limiter_ms"),
]


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
    as_they_are = {name: LINE[name] for name in FIELDS if name in LINE}
    assert line == {
        **as_they_are,
        "time": "2023-11-14T22:13:20.000042Z",
        "decision": "admitted",
        "duration_ms": 12.345,
        "upstream_ms": 12.001,
        "protocol": "HTTP/1.1",
        "gate_ms": 0.035,
        "limiter_ms": 0.25,
    }


def test_missing_values_are_null(tmp_path: Path) -> None:
    """A missing key, route or upstream is null."""
    absent = dict.fromkeys(
        ("route", "key_id", "account", "plan", "limit", "upstream_us", "upstream")
    )
    (line,) = written(tmp_path, dict(**absent, reason="key_missing", host="", gate_us=None))
    assert list(line) == FIELDS
    nulls = {name for name, found in line.items() if found is None}
    assert nulls == {
        *("route", "key_id", "account", "plan", "limit", "upstream_ms", "upstream"),
        *("host", "server", "remaining", "gate_ms", "limiter_ms"),
    }
    assert line["reason"] == "key_missing"


@given(times=st.lists(st.integers(0, 4_102_444_800_000_000), min_size=1, max_size=5))
def test_times_are_exact(tmp_path_factory: pytest.TempPathFactory, times: list[int]) -> None:
    """Every microsecond survives, in whatever order times come (clocks step back)."""
    path = tmp_path_factory.mktemp("times")
    found = written(path, *({"time_us": each} for each in times))
    for time_us, line in zip(times, found, strict=True):
        expected = datetime.fromtimestamp(time_us // 1_000_000, UTC)
        assert line["time"] == f"{expected:%Y-%m-%dT%H:%M:%S}.{time_us % 1_000_000:06d}Z"


TEXTS = ("client_ip", "method", "route", "key_id", "account", "plan", "limit", "server")


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


def line_of(form: AccessLogFormat, **changes: Any) -> str:
    """The line of LINE with these changes."""
    line = {**LINE, **changes}
    return compile_format(form)(
        logged(**changes), line["status"], line["time_us"], line["duration_us"], line["reason"], 1.0
    )


@given(
    changes=st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys((*TEXTS, "upstream", "reason", "path"), st.text(min_size=1)),
            **dict.fromkeys(("status", "cost", "bytes_in", "bytes_out"), st.integers(0, 10**12)),
            **dict.fromkeys(("gate_us", "limiter_us"), st.integers(0, 10**9)),
            "duration_us": st.integers(0, 10**9),
            "host": st.sampled_from(["", "a.example", "[::1]:80"]),
            "minor": st.sampled_from([0, 1]),
        },
    )
)
def test_both_ways_to_write_json_agree(changes: dict[str, Any]) -> None:
    """The fast line has the values that the fields have one by one, in every order of lines."""
    shuffled = AccessLogFormat(fields=(*DEFAULT_FIELDS[1:], "time"))
    fast = json.loads(line_of(AccessLogFormat(), **changes))
    assert json.loads(line_of(shuffled, **changes)) == fast


def test_cached_texts_are_those_of_the_request() -> None:
    """One writer, many requests: no line has a text of another one."""
    write = compile_format(AccessLogFormat())
    for number in range(10_000):
        key = f"key-{number}"
        request = logged(key_id=key, path=f"/{number}", host=f"h{number}", client_ip=f"::{number}")
        line = json.loads(write(request, 200, 1, 1, None, 1.0))
        found = line["key_id"], line["path"], line["host"], line["client_ip"]
        assert found == (key, f"/{number}", f"h{number}", f"::{number}")


HEADERS = (
    "Host: a.example\r\nUser-Agent: curl/8\r\nReferer: https://b.example/x?token=1\r\n"
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
)


def test_all_fields_by_name() -> None:
    """Every field can be asked for, in any order; numbers are numbers."""
    form = AccessLogFormat(fields=ALL_FIELDS, query="keep")
    line = json.loads(line_of(form, forward=HEADERS, query="?a=1&Token=s", tls="TLSv1.3"))
    assert list(line) == list(ALL_FIELDS)
    more = {name: line[name] for name in ALL_FIELDS[len(DEFAULT_FIELDS) :]}
    assert more == {
        "query": "a=1&Token=[redacted]",
        "user_agent": "curl/8",
        "referrer": "https://b.example/x?token=[redacted]",
        "tls": "TLSv1.3",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "sample": 1,
        "request": "GET /api/search/users?a=1&Token=[redacted] HTTP/1.1",
        "time_local": "14/Nov/2023:22:13:20 +0000",
        "mcp_method": None,
        "mcp_tool": None,
        "mcp_version": None,
        "rpc_id": None,
    }


def test_a_query_or_sample_is_shown_without_naming_it() -> None:
    """`query` and `sample` add their fields to JSON, and `sample` to combined."""
    assert "query" in json.loads(line_of(AccessLogFormat(query="names")))
    assert json.loads(line_of(AccessLogFormat(sample=0.5)))["sample"] == 1
    assert line_of(AccessLogFormat("combined", sample=0.5)).endswith(" sample=1\n")


def test_combined_is_what_nginx_writes() -> None:
    """The fields of Apache and nginx; the key's id is the user."""
    assert line_of(AccessLogFormat("combined"), forward=HEADERS) == (
        '203.0.113.7 - 7h3k9m2p4q6r [14/Nov/2023:22:13:20 +0000] "GET /api/search/users HTTP/1.1" '
        '200 512 "https://b.example/x" "curl/8"\n'
    )
    absent = line_of(AccessLogFormat("combined"), key_id=None, path="", method="")
    assert absent == '203.0.113.7 - - [14/Nov/2023:22:13:20 +0000] "-" 200 512 "-" "-"\n'


@given(
    agent=st.text(st.characters(codec="latin-1", exclude_characters="\r\n")),
    path=st.from_regex(r"(?:/[!-~]{0,20}){1,4}", fullmatch=True).filter(
        lambda path: "?" not in path and "gwk" not in path.lower()
    ),
)
def test_no_value_leaves_its_field(agent: str, path: str) -> None:
    """Quotes, ends of lines and separators in a value are escaped; `simulate` reads it back."""
    forward = f"User-Agent: {agent}\r\n"
    combined = line_of(AccessLogFormat("combined"), forward=forward, path=path)
    assert combined.count("\n") == 1
    assert combined.isascii()
    read = parse_combined(combined.encode())
    assert (read.method, read.path, read.key_id) == ("GET", path.partition("?")[0], LINE["key_id"])
    assert (read.status, read.time_us) == (200, LINE["time_us"] // 10**6 * 10**6)
    template = "{time} {user_agent}|{path}|{method} {key_id} {plan} {decision} {cost}!"
    own = line_of(AccessLogFormat(template), forward=forward, path=path)
    assert own.count("\n") == 1
    found = LogFormat("template", template=template).reader()(own.removesuffix("\n").encode())
    as_json = parse_gateway(line_of(AccessLogFormat(), path=path).encode())
    for name in ("time_us", "path", "method", "key_id", "plan", "decision", "cost"):
        assert getattr(found, name) == getattr(as_json, name)


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"path": '/a"b'}, '/a\\x22b|"x"'),
        ({"path": "/a|b\\"}, '/a\\x7Cb\\x5C|"x"'),
        ({"path": "/\n\x1b[2Jü"}, '/\\x0A\\x1B[2J\\xC3\\xBC|"x"'),
    ],
)
def test_escapes(changes: dict[str, Any], written: str) -> None:
    """As nginx: quotes, backslashes, controls, other bytes than ASCII, and the separator."""
    assert line_of(AccessLogFormat('{path}|"x"'), **changes) == written + "\n"
