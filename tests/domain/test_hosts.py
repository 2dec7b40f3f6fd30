"""The table of routes for a Host: which routes serve it, in which order."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.conflicts import conflicts, unreachable
from gateway.domain.hosts import HostTables, host_groups, host_name, serves
from gateway.domain.route import Route
from gateway.errors import AMBIGUOUS_PATH, Refusal
from tests.domain.route_rules import at, no_deadline, route


def routes(*texts: str) -> list[Route]:
    """Routes as "PATTERN" or "PATTERN on HOST HOST", named by these texts."""
    made = []
    for text in texts:
        pattern, _, hosts = text.partition(" on ")
        made.append(replace(route(pattern, text), hosts=tuple(hosts.split())))
    return made


def found(tables: HostTables, host: str, request: str) -> str | Refusal | None:
    """The name of the route of a request on a host."""
    method, path = request.split(" ")
    match = tables.table(host.encode()).match(method, at(path))
    return match.name if isinstance(match, Route) else match


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"api.example.com", b"api.example.com"),
        (b"API.Example.COM:8443", b"api.example.com"),
        (b"api.example.com.", b"api.example.com"),
        (b"api.example.com.:80", b"api.example.com"),
        (b"api.example.com..", b""),
        (b"api..example.com", b""),
        (b".example.com", b""),
        (b".", b""),
        (b"", b""),
        (b"[::1]:80", b""),
        (b"127.0.0.1:80", b"127.0.0.1"),
        (b"xn--bcher-kva.example", b"xn--bcher-kva.example"),
    ],
)
def test_the_name_of_a_host(host: bytes, name: bytes) -> None:
    """Letter case, a port and a final dot make no difference; an empty label is no name."""
    assert host_name(host) == name


ALL = "GET /**"
WIDE = "GET /** on *.example.com"
NARROW = "GET /** on *.eu.example.com"
EXACT = "GET /a on api.example.com"


@pytest.mark.parametrize(
    ("host", "request_", "expected"),
    [
        ("api.example.com", "GET /a", EXACT),
        ("API.EXAMPLE.COM.:8443", "GET /a", EXACT),
        # What its own table lacks is looked for in the next one.
        ("api.example.com", "GET /b", WIDE),
        ("api.example.com", "POST /a", None),
        ("www.example.com", "GET /a", WIDE),
        # At any depth, the longest wildcard first.
        ("a.b.example.com", "GET /a", WIDE),
        ("a.eu.example.com", "GET /a", NARROW),
        ("a.b.eu.example.com", "GET /a", NARROW),
        ("eu.example.com", "GET /a", WIDE),
        # A wildcard is not the name itself, and no part of a label.
        ("example.com", "GET /a", ALL),
        ("badexample.com", "GET /a", ALL),
        ("example.com.evil", "GET /a", ALL),
        ("..example.com", "GET /a", ALL),
        (".example.com", "GET /a", ALL),
        ("*.example.com", "GET /a", WIDE),
        ("", "GET /a", ALL),
        ("[::1]", "GET /a", ALL),
        (".".join(["a"] * 120) + ".example.com", "GET /a", WIDE),
        # The gateway's own paths are on every host.
        ("api.example.com", "GET /health", "gateway:ping"),
        ("api.example.com", "GET /v1/auth/verify", "gateway:verify"),
    ],
)
def test_the_order_of_hosts(host: str, request_: str, expected: str | None) -> None:
    """The exact host, then the longest wildcard, then the routes without hosts."""
    texts = [ALL, WIDE, NARROW, EXACT]
    for ordered in (texts, texts[::-1]):
        assert found(HostTables(routes(*ordered)), host, request_) == expected


def test_the_host_comes_before_the_pattern() -> None:
    """A less specific pattern of the host is preferred to a more specific one of all hosts."""
    tables = HostTables(routes("GET /a/b", "* /a/** on api.example"))
    assert found(tables, "api.example", "GET /a/b") == "* /a/** on api.example"
    assert found(tables, "other.example", "GET /a/b") == "GET /a/b"


def test_a_host_without_any_route() -> None:
    """Nothing is found, as for a path without a route; and the methods of all tables are named."""
    tables = HostTables(routes("GET /a on a.example", "POST /a on *.example", "PUT /a"))
    assert found(tables, "elsewhere", "GET /a") is None
    assert tables.table(b"a.example").methods_at(("a",)) == ("GET", "HEAD", "POST", "PUT")
    assert tables.table(b"elsewhere").methods_at(("a",)) == ("PUT",)


def test_letter_case_across_hosts() -> None:
    """A request may not evade a case-sensitive route of its host into a route of all hosts."""
    tables = HostTables(routes("cs GET /Admin on api.example", "GET /**"))
    assert found(tables, "api.example", "GET /Admin") == "cs GET /Admin on api.example"
    assert found(tables, "api.example", "GET /admin") is AMBIGUOUS_PATH
    assert found(tables, "other.example", "GET /admin") == "GET /**"


def test_the_number_of_tables_is_the_policys() -> None:
    """Hosts with the same routes share a table; no request adds one."""
    hosts = " ".join(f"h{number}.example" for number in range(50))
    tables = HostTables(routes("GET /**", f"GET /a on {hosts}", f"GET /b on {hosts}"))
    before = list(tables.tables())
    assert len(before) == 2
    for number in range(10_000):
        tables.table(b"%d.example" % number)
    assert list(tables.tables()) == before
    assert found(pickle.loads(pickle.dumps(tables)), "h7.example", "GET /b")


def test_steps_include_the_fallback() -> None:
    """What a request may cost is bounded over all tables that it may pass."""
    tables = HostTables(
        routes("GET /a/b/**/c", "GET /a/b/**/d on *.example", "GET /x on a.example")
    )
    alone, wide = tables.default, tables.of("*.example")
    exact = tables.of("a.example")
    assert alone.most_steps() < wide.most_steps() < exact.most_steps()
    assert (alone.gapped_segments, exact.gapped_segments) == (4, 8)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["GET /a on a.example", "GET /a on b.example"], []),
        (["GET /a on a.example", "GET /a on *.example"], []),
        (["GET /a on a.example", "GET /a"], []),
        (["GET /a on a.example b.example", "GET /{x} on b.example"], []),
        (["GET /a on a.example b.example", "GET /a on b.example a.example"], [(0, 1)]),
        (["GET /a on *.example", "GET /a on a.example *.example"], [(0, 1)]),
        (["GET /a/*/c on x", "GET /a/b/** on x y"], [(0, 1)]),
        (["GET /a/*/c on x", "GET /a/b/** on x", "GET /a/b/c on x"], []),
        # A third route decides only on the hosts that it serves.
        (["GET /a/*/c on x y", "GET /a/b/** on x y", "GET /a/b/c on x"], [(0, 1)]),
    ],
)
def test_conflicts_need_a_common_host(texts: Sequence[str], expected: object) -> None:
    """Only routes with an entry in common are compared: else the host decides."""
    given_routes = routes(*texts)
    conflicting = [
        (given_routes.index(each.first), given_routes.index(each.second))
        for each in conflicts(given_routes)
    ]
    assert conflicting == expected


def test_unreachable_routes() -> None:
    """Only others of the same hosts cover a route, and one host where it is reached is enough."""
    covered = ["GET /a on x", "GET /a/*/** on x"]
    assert [each.name for each in unreachable(routes("GET /a/** on x", *covered))] == [
        "GET /a/** on x"
    ]
    assert not unreachable(routes("GET /a/** on x y", *covered))
    assert not unreachable(routes("GET /a/**", *covered))


HOSTS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3).map(".".join)
ENTRIES = st.tuples(st.sampled_from(["", "*."]), HOSTS).map("".join)


@no_deadline
@given(st.lists(st.lists(ENTRIES, max_size=3, unique=True), max_size=5), HOSTS)
def test_the_first_table_is_of_routes_that_serve_the_host(
    entries: list[list[str]], host: str
) -> None:
    """The found route serves the host by the most specific entry of any route."""
    made = [
        replace(route("GET /**", str(number)), hosts=tuple(hosts))
        for number, hosts in enumerate(entries)
    ]
    serving = [each for each in made if serves(each, host)]
    name = found(HostTables(made), host, "GET /x")
    if not serving:
        assert name is None
        return
    ranks = {each.name: max(map(_rank(host), each.hosts or ("",))) for each in serving}
    assert ranks[str(name)] == max(ranks.values())


def _rank(host: str):  # type: ignore[no-untyped-def]
    def rank(entry: str) -> int:
        if not entry:
            return 0
        if entry.startswith("*."):
            return entry.count(".") if host.endswith(entry[1:]) else -1
        return 100 if entry == host else -1

    return rank


def test_groups() -> None:
    """Routes without hosts first; the same routes once."""
    first, second, third = routes("GET /a", "GET /b on x y", "GET /c on y x")
    assert [list(group) for group in host_groups([second, first, third])] == [
        [first],
        [second, third],
    ]
