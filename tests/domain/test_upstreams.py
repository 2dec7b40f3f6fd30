"""Servers: how they are written, what they are asked for, and which name they must prove."""

from __future__ import annotations

import pytest

from gateway.domain.upstreams import Ejection, Server, Trust


@pytest.mark.parametrize(
    ("server", "authority", "url"),
    [
        (Server("http", "a.test", 9000), "a.test:9000", "http://a.test:9000"),
        (Server("http", "a.test", 80), "a.test", "http://a.test"),
        (Server("https", "a.test", 443), "a.test", "https://a.test"),
        (Server("https", "a.test", 80, "/v1"), "a.test:80", "https://a.test:80/v1"),
        (Server("http", "::1", 9000), "[::1]:9000", "http://[::1]:9000"),
        (Server("http", "_a._tcp.test", 80, srv=True), "_a._tcp.test", "srv+http://_a._tcp.test"),
    ],
)
def test_how_a_server_is_written(server: Server, authority: str, url: str) -> None:
    """The scheme's default port is left out; an IPv6 address has brackets."""
    assert (server.authority, server.url) == (authority, url)


@pytest.mark.parametrize(
    ("asked", "name"),
    [("", "a.test"), ("a.test:8443", "a.test"), ("b.test", "b.test"), ("b.test:8443", "b.test")],
)
def test_the_name_of_a_certificate(asked: str, name: str) -> None:
    """The server's own, unless it gets another name as Host."""
    assert Server("https", "a.test", 8443, asked=asked).tls_name == name


@pytest.mark.parametrize(
    ("asked", "expected"), [("", ""), ("b.test", "b.test"), ("_api.test", "one.test:9001")]
)
def test_a_server_of_a_record(asked: str, expected: str) -> None:
    """It has the settings of the record's name; its own name as Host, if that one had its own."""
    named = Server("http", "_api.test", 80, "/v1", weight=3, srv=True, asked=asked)
    found = named.at("one.test", 9001)
    assert found == Server("http", "one.test", 9001, "/v1", asked=expected)


def test_files_and_answers_that_count() -> None:
    """Only files that are set are read; answers count if a share or a latency is set."""
    assert Trust("ca.pem", None, "key.pem").files == ("ca.pem", "key.pem")
    assert not Ejection(failures=1).counts_answers
    assert Ejection(errors_percent=50).counts_answers
    assert Ejection(latency_s=2.0).counts_answers
