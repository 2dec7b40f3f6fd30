"""Cross-origin rules: the Fetch standard's cases as tables; patterns; hostile origins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.cors import (
    DEFAULT_HEADERS,
    EXPOSED,
    MCP_HEADERS,
    MOST_REQUESTED,
    Cors,
    CorsRules,
    for_mcp,
    is_list,
    with_vary,
    without_access_control,
)

APP = "https://app.example.com"


def fields(lines: bytes) -> dict[str, str]:
    """The lines by name, each once."""
    pairs = [line.split(": ", 1) for line in lines.decode().splitlines()]
    assert len({name for name, _ in pairs}) == len(pairs)
    return {name.removeprefix("Access-Control-"): value for name, value in pairs}


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ([APP], APP, True),
        ([APP], "", False),
        ([APP], "null", False),
        # Fetch, 4.9 (CORS check): byte by byte.
        ([APP], "https://APP.example.com", False),
        ([APP], "HTTPS://app.example.com", False),
        ([APP], "http://app.example.com", False),
        ([APP], f"{APP}:8443", False),
        ([APP], f"{APP}/", False),
        ([APP], f"{APP} ", False),
        ([APP], f"{APP}.evil.test", False),
        ([APP], f"{APP}, https://evil.test", False),
        ([APP], f"x{APP}", False),
        (["https://*.example.com"], APP, True),
        (["https://*.example.com"], "https://a.b.example.com", True),
        (["https://*.example.com"], "https://example.com", False),
        (["https://*.example.com"], "https://.example.com", False),
        (["https://*.example.com"], "https://evilexample.com", False),
        (["https://*.example.com"], "https://evil.test/.example.com", False),
        (["https://*.example.com"], "https://evil.test#.example.com", False),
        (["https://*.example.com"], "https://evil.test:443.example.com", False),
        (["https://*.example.com"], "https://user@x.example.com", False),
        (["https://*.example.com"], "https://x-.example.com", False),
        (["https://*.example.com"], "https://axexamplexcom", False),
        (["https://*.example.com"], f"{APP}:8443", False),
        (["https://*.example.com"], f"{APP}\n", False),
        (["http://localhost:*"], "http://localhost:3000", True),
        (["http://localhost:*"], "http://localhost", True),
        (["http://localhost:*"], "http://localhost:3000.evil.test", False),
        (["http://localhost:*"], "http://localhost.evil.test:3000", False),
        (["https://*.example.com:8443"], f"{APP}:8443", True),
        (["https://*.example.com:8443"], f"{APP}:8444", False),
        (["https://*.example.com:8443"], APP, False),
        (["https://*.example.com:*"], f"{APP}:8444", True),
        (["https://*.example.com:*"], APP, True),
        (["https://*.example.com:*"], f"{APP}:", False),
        (["https://*.example.com:*"], "http://app.example.com", False),
        (["https://*.test", "https://*.a.b.test"], "https://x.y.test", True),
        (["https://*.test", "https://*.a.b.test"], "https://x.a.b.test", True),
        (["https://*.test", "https://*.a.b.test"], "https://a.b.test", True),
        (["https://*.test"], "https://a..test", False),
        (["https://*.test"], f"https://{'a' * 64}.test", False),
        (["http://[::1]:*"], "http://[::1]:80", True),
        (["http://[::1]:*"], "http://[::2]:80", False),
        (["*"], APP, True),
        (["*"], "null", True),
    ],
)
def test_origins(origins: list[str], origin: str, allowed: bool) -> None:
    """An allowed origin is named back, or "*"; one that is not allowed gets no field at all."""
    rules = CorsRules(Cors(tuple(origins)))
    assert rules.allows(origin) is allowed
    lines = fields(rules.lines(origin))
    if allowed:
        assert lines["Allow-Origin"] == ("*" if origins == ["*"] else origin)
        assert lines["Expose-Headers"] == ", ".join(EXPOSED)
        assert "Allow-Credentials" not in lines
    else:
        assert lines == {}


def test_many_patterns_take_no_longer() -> None:
    """The longest origin is compared with 256 patterns in as many steps as with one."""
    origin = f"https://{'a.' * 140}net"

    def steps(count: int) -> int:
        patterns = tuple(f"https://*.e{number}.example.com:*" for number in range(count))
        rules = CorsRules(Cors(patterns))
        taken = 0

        class Counted(set[tuple[str, str, str]]):
            def __contains__(self, key: object) -> bool:
                nonlocal taken
                taken += 1
                return super().__contains__(key)

        rules._patterns._domains = Counted(rules._patterns._domains)
        assert not rules.allows(origin)
        return taken

    assert steps(256) == steps(1) < 10


def test_any_origin_does_not_vary() -> None:
    """With "*" the answer to a request without Origin is the same, so that caches may share it."""
    rules = CorsRules(Cors(("*",)))
    assert not rules.varies
    assert rules.lines("") == rules.lines(APP)
    assert CorsRules(Cors((APP,))).varies


def test_routes_of_mcp() -> None:
    """They allow and expose the fields of MCP, each once, beside what is configured."""
    allowed = for_mcp(Cors((APP,), headers=("mcp-NAME", "X-Mine"), expose=("X-Total",)))
    assert allowed.headers[:2] == ("mcp-NAME", "X-Mine")
    assert set(allowed.headers[2:]) == set(MCP_HEADERS) - {"Mcp-Name"}
    assert allowed.expose == ("X-Total", "Mcp-Session-Id")
    assert for_mcp(allowed) == allowed
    every = Cors((APP,), headers=("*",), expose=("*",))
    assert for_mcp(every) == every


def test_credentials_name_the_origin() -> None:
    """Fetch, 4.9: with credentials the value must be the origin, and the other field "true"."""
    lines = fields(CorsRules(Cors((APP,), credentials=True)).lines(APP))
    assert (lines["Allow-Origin"], lines["Allow-Credentials"]) == (APP, "true")


@pytest.mark.parametrize(
    ("cors", "requested", "expected"),
    [
        (Cors((APP,)), "", {"Allow-Methods": "GET, HEAD"}),
        (Cors((APP,)), "x-any", {"Allow-Headers": ", ".join(DEFAULT_HEADERS)}),
        (Cors((APP,), methods=("PUT", "PATCH")), "", {"Allow-Methods": "PUT, PATCH"}),
        (Cors((APP,), headers=("X-A", "X-B")), "x-c", {"Allow-Headers": "X-A, X-B"}),
        (Cors((APP,), headers=("*",)), "authorization,x-c", {"Allow-Headers": "authorization,x-c"}),
        (Cors((APP,), max_age_s=600.0), "", {"Max-Age": "600"}),
        (Cors((APP,), max_age_s=0.0), "", {"Max-Age": "0"}),
    ],
)
def test_preflights(cors: Cors, requested: str, expected: dict[str, str]) -> None:
    """What is allowed is listed, so that a browser names what is missing."""
    lines = fields(CorsRules(cors).preflight_lines(APP, "GET, HEAD", requested))
    assert lines["Allow-Origin"] == APP
    assert "Expose-Headers" not in lines
    assert lines.items() >= expected.items()


@pytest.mark.parametrize(
    "requested",
    ["", "x\r\nSet-Cookie: a=b", "a b", "a,,b", ",", "é", ",".join(["x-name"] * 1000), "x" * 8192],
)
def test_what_is_no_short_list_is_not_repeated(requested: str) -> None:
    """Any requested field is allowed, but only what is a list of names, of a bounded length."""
    assert len("x" * MOST_REQUESTED) == MOST_REQUESTED
    assert is_list("x" * MOST_REQUESTED)
    assert not is_list(requested)
    rules = CorsRules(Cors((APP,), headers=("*",)))
    assert "Allow-Headers" not in fields(rules.preflight_lines(APP, "GET", requested))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"", b"Vary: Origin\r\n"),
        (b"A: b\r\n", b"A: b\r\nVary: Origin\r\n"),
        (b"Vary: Accept\r\nA: b\r\n", b"A: b\r\nVary: Accept, Origin\r\n"),
        (b"vary: Accept\r\nVary: Cookie\r\n", b"Vary: Accept, Cookie, Origin\r\n"),
        (b"Vary: ORIGIN, Accept\r\n", b"Vary: ORIGIN, Accept\r\n"),
        (b"Vary: Accept, *\r\n", b"Vary: *\r\n"),
        (b"Vary: , ,\r\n", b"Vary: Origin\r\n"),
        (b"X-Vary: a\r\n", b"X-Vary: a\r\nVary: Origin\r\n"),
    ],
)
def test_vary_is_merged(lines: bytes, expected: bytes) -> None:
    """The upstream's names stay, in one line with Origin."""
    assert with_vary(lines, b"Origin") == expected


def test_the_upstreams_fields_are_dropped() -> None:
    """In any letter case; others stay as they are."""
    ours = b"A: access-control-x\r\nX-Access-Control-Y: 1\r\n"
    theirs = b"access-control-allow-origin: *\r\nAccess-Control-Max-Age: 9\r\n"
    assert without_access_control(ours) == ours
    assert without_access_control(theirs + ours) == ours


@given(st.text())
def test_no_origin_adds_a_line(origin: str) -> None:
    """Whatever is sent: an allowed origin is one value of a field."""
    for origins in (("https://*.example.com", "http://localhost:*"), (APP,), ("*",)):
        lines = CorsRules(Cors(origins)).lines(origin)
        assert lines.count(b"\n") in (0, 2)


def test_long_origins_match_nothing() -> None:
    """Patterns do not backtrack over 8 KB, whatever is in it."""
    rules = CorsRules(Cors(tuple(f"https://*.example{n}.com" for n in range(256))))
    hostile = ["https://" + "a." * 4000, "https://" + "a" * 8000, "https://" + "-." * 140]
    for origin in hostile * 100:
        assert not rules.allows(origin)
