"""`cors` of a route and of a policy: what is read, and each fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.domain.cors import Cors
from gateway.domain.headers import CROSS_ORIGIN
from gateway.policies.cors import read_origin
from gateway.policies.load import load
from tests.policies.folder import complaints, write


def routes_with(cors: str) -> str:
    return f'routes: {{r: {{match: "* /b", upstream: api, cors: {cors}}}}}\n'


def test_all_settings(tmp_path: Path) -> None:
    """Each is read; the fields that decide are then read of every request."""
    text = (
        '{origins: ["https://a.test", "https://a.test"], methods: [PUT], headers: [X-A], '
        "expose: [X-B], credentials: true, max_age: 10m}"
    )
    policy = load(write(tmp_path, routes=routes_with(text)))
    expected = Cors(("https://a.test",), ("PUT",), ("X-A",), ("X-B",), True, 600.0)
    assert policy.routes["r"].cors == expected
    assert policy.counted_headers == set(CROSS_ORIGIN)


def test_a_routes_replaces_the_policys(tmp_path: Path) -> None:
    """It is not merged; false turns it off; the policy's is for all others."""
    routes = """
routes:
  own: {match: GET /own, upstream: api, cors: {origins: ["https://own.test"]}}
  off: {match: GET /off, upstream: api, cors: false}
  all: {match: GET /all, upstream: api}
cors: {origins: ["*"], max_age: 1h}
"""
    policy = load(write(tmp_path, routes=routes))
    assert policy.cors == Cors(("*",), max_age_s=3600.0)
    assert policy.routes["own"].cors == Cors(("https://own.test",))
    assert policy.routes["off"].cors is None
    assert policy.routes["all"].cors == policy.cors


def test_without_it_no_field_is_read(tmp_path: Path) -> None:
    """Origin twice is then no fault of a request."""
    assert load(write(tmp_path, routes=routes_with("false"))).counted_headers == set()


@pytest.mark.parametrize(
    ("cors", "faults"),
    [
        ("true", ["cors: found true (a YAML boolean), expected a mapping with origins, or false"]),
        ("[]", ["cors: found a list, expected a mapping with origins, or false"]),
        ("{}", ["cors: found a mapping without 'origins', expected the key 'origins'"]),
        ("{orgins: []}", ["cors.orgins: found the key 'orgins', expected one of", "cors: found a"]),
        ("{origins: []}", ["cors.origins: found an empty list, expected at least one origin"]),
        ("{origins: '*'}", ["cors.origins: found '*', expected a list of origins such as https"]),
        (
            '{origins: ["*"], credentials: true}',
            ["cors.origins: found any origin, expected the origins themselves, as credentials"],
        ),
        (
            '{origins: ["*", "https://a.test"]}',
            ['cors.origins: found "*" and other origins, expected "*" alone, or other origins'],
        ),
        (
            '{origins: ["https://a.test"], expose: ["*"], credentials: true}',
            ['cors.expose: found "*", expected names, as browsers ignore'],
        ),
        (
            '{origins: ["https://a.test"], headers: ["*", X-A]}',
            ['cors.headers: found "*" and names, expected "*" alone'],
        ),
        (
            '{origins: ["https://a.test"], methods: [get, TRACE]}',
            [
                "cors.methods[0]: found 'get', expected a method in capitals",
                "cors.methods[1]: found 'TRACE', expected a method that scripts can send",
            ],
        ),
        ('{origins: ["https://a.test"], methods: []}', ["cors.methods: found an empty list"]),
        ('{origins: ["https://a.test"], headers: ["a b"]}', ["cors.headers[0]: found 'a b'"]),
        ('{origins: ["https://a.test"], max_age: 2d}', ["cors.max_age: found '2d', expected a"]),
        ('{origins: ["https://a.test"], max_age: 10ms}', ["cors.max_age: found '10ms'"]),
        ('{origins: ["https://a.test"], max_age: 600}', ["cors.max_age: found the number 600 wit"]),
        ('{origins: ["https://a.test/"]}', ["cors.origins[0]: found 'https://a.test/', expected"]),
        ("{origins: [{a: b}]}", ["cors.origins[0]: found a mapping, expected an origin such as"]),
    ],
)
def test_faults(tmp_path: Path, cors: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(write(tmp_path, routes=routes_with(cors)))
    assert len(found) == len(faults), found
    for one, words in zip(found, faults, strict=True):
        assert one.startswith(f"routes.yaml:1: routes.r.{words}"), one


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "https://app.example.com",
        "https://*.example.com",
        "http://localhost:3000",
        "http://localhost:*",
        "http://*.localhost:*",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "chrome-extension://abcdefghijklmnop",
        "capacitor://localhost",
        "https://xn--mnchen-3ya.example",
    ],
)
def test_origins(origin: str) -> None:
    """As browsers send them, of any scheme."""
    assert read_origin(origin) == origin


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("null", "an origin that is one page's: null is that of any sandboxed page"),
        ("https://App.Example.com", "it as browsers send it, in lower case: https://app.example"),
        ("https://a.test/", "an origin, which has no path: https://a.test"),
        ("https://a.test/x/y", "an origin, which has no path: https://a.test"),
        ("https://a.test:443", "it as browsers send it, without the default port: https://a.test"),
        ("http://a.test:80", "it as browsers send it, without the default port: http://a.test"),
        ("http://a.test:99999", "a port from 1 to 65535"),
        ("http://a.test:080", "a port from 1 to 65535"),
        ("https://*.com", "a domain with one owner after *., not all of .com"),
        ("https://*", "an origin such as https://app.example.com or https://*.example.com: *"),
        ("https://a.*.test", "an origin such as https://app.example.com or https://*.example"),
        ("*.example.com", "an origin such as https://app.example.com or https://*.example.com: *"),
        ("example.com", "an origin such as https://app.example.com"),
        ("https://münchen.test", "a host in ASCII, as browsers send it: xn--"),
        ("http://[::01]:80", "it as browsers send it, without the default port"),
        ("http://[::01]", "it as browsers send it: http://[::1]"),
        ("http://[::g]", "an origin such as"),
        ("http://[:::]", "an origin such as"),
        ("https://a.test\n", "an origin such as"),
        ("", "an origin such as"),
        ("https://" + "a" * 5000, "an origin such as"),
    ],
)
def test_faults_of_origins(origin: str, expected: str) -> None:
    """What a browser never sends would never match: the fault says what it sends."""
    with pytest.raises(ValueError, match=re.escape(expected)):
        read_origin(origin)
