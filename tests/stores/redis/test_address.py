"""Store URLs, and the sources of secrets."""

from __future__ import annotations

import os
import ssl
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stores.redis.address import (
    StoreAddress,
    has_password,
    parse_url,
    read_address,
    secret_from_env,
    ssl_context,
)
from gateway.stores.redis.clients import client_options, redis_client
from tests.kit.certificates import make_certificate
from tests.kit.needs import needs
from tests.kit.rows import each_row


@each_row(
    ("url", "address", "label"),
    [
        ("redis://h", StoreAddress("tcp", "h", 6379), "redis://h:6379/0"),
        ("redis://h:1/2", StoreAddress("tcp", "h", 1, db=2), "redis://h:1/2"),
        ("redis://[::1]:1", StoreAddress("tcp", "::1", 1), "redis://[::1]:1/0"),
        ("REDIS://h/", StoreAddress("tcp", "h", 6379), "redis://h:6379/0"),
        ("rediss://h", StoreAddress("tcp", "h", 6379, tls=True), "rediss://h:6379/0"),
        (
            "redis://u:p%40%2F@h",
            StoreAddress("tcp", "h", 6379, username="u", password="p@/"),
            "redis://h:6379/0",
        ),
        ("redis://:p@h", StoreAddress("tcp", "h", 6379, password="p"), "redis://h:6379/0"),
        ("unix:///a/b.sock", StoreAddress("unix", path="/a/b.sock"), "unix:///a/b.sock?db=0"),
        ("unix:///a%20b?db=3", StoreAddress("unix", path="/a b", db=3), "unix:///a b?db=3"),
        (
            "unix://u:p@/a",
            StoreAddress("unix", path="/a", username="u", password="p"),
            "unix:///a?db=0",
        ),
        ("memory://", StoreAddress("memory"), "memory://"),
        (
            "redis+sentinel://u:p%40@h1,h2:1,[::1]:2/my%2Fmaster/3",
            StoreAddress(
                "sentinel",
                db=3,
                username="u",
                password="p@",
                hosts=(("h1", 26379), ("h2", 1), ("::1", 2)),
                service="my/master",
            ),
            "redis+sentinel://h1:26379,h2:1,[::1]:2/my%2Fmaster/3",
        ),
        (
            "rediss+sentinel://h/s",
            StoreAddress("sentinel", tls=True, hosts=(("h", 26379),), service="s"),
            "rediss+sentinel://h:26379/s/0",
        ),
        (
            "REDIS+cluster://:p@h1,[2001:db8::1]:7000/",
            StoreAddress("cluster", password="p", hosts=(("h1", 6379), ("2001:db8::1", 7000))),
            "redis+cluster://h1:6379,[2001:db8::1]:7000",
        ),
        (
            "rediss+cluster://h/0",
            StoreAddress("cluster", tls=True, hosts=(("h", 6379),)),
            "rediss+cluster://h:6379",
        ),
    ],
)
def test_valid_urls(url, address, label):
    """A URL is read into its parts, and its label has no credentials."""
    assert parse_url(url) == address
    assert parse_url(url).label == label


def test_the_password_beside_the_url_goes_first():
    """A password that is given separately replaces the URL's own."""
    assert parse_url("redis://u:old@h", "new").password == "new"
    assert parse_url("redis://u@h", "new").username == "u"
    assert "new" not in repr(parse_url("redis://u:old@h", "new"))


@each_row(
    ("url", "words"),
    [
        ("", "unknown scheme"),
        ("h:6379", "unknown scheme"),
        ("http://hunter2@h", "unknown scheme"),
        ("redis:h", "unknown scheme"),
        ("redis://", "names no host"),
        ("redis://:hunter2@", "names no host"),
        ("redis://h:0", "port"),
        ("redis://h:99999", "port"),
        ("redis://u:hunter2/x@h", "port"),
        ("redis://h/x", "database"),
        ("redis://h/1/2", "database"),
        ("redis://h/-1", "database"),
        ("redis://h/\N{SUPERSCRIPT TWO}", "database"),
        ("redis://h?password=hunter2", "no options"),
        ("redis://u:hunter#2@h", "%23"),
        ("redis://[::1", "cannot be read"),
        ("redis://u:hunter2\N{FULLWIDTH COMMERCIAL AT}@h", "cannot be read"),
        ("unix://", "absolute path"),
        ("unix://run/redis.sock", "absolute path"),
        ("unix:///a?hunter2=1", "no other option"),
        ("unix:///a?db=x", "database"),
        ("memory://hunter2", "nothing after"),
        ("redis+sentinel://u:hunter2@h", "names no service"),
        ("redis+sentinel://u:hunter2@h/", "names no service"),
        ("redis+sentinel://u:hunter2@h/s/x", "database"),
        ("redis+sentinel://u:hunter2@h/s/1/2", "database"),
        ("redis+sentinel://u:hunter2@/s", "hosts"),
        ("redis+sentinel://u:hunter2@h,/s", "hosts"),
        ("redis+sentinel://u:hunter2@h:0/s", "hosts"),
        ("redis+sentinel://u:hunter2@h:65536/s", "hosts"),
        ("redis+sentinel://u:hunter2@h:x/s", "hosts"),
        ("redis+sentinel://u:hunter2/x@h/s", "hosts"),
        ("redis+sentinel://u:hunter2\N{FULLWIDTH COMMERCIAL AT}h:1/s", "hosts"),
        ("redis+sentinel://hunter2\N{FULLWIDTH COMMERCIAL AT}h/s", "hosts"),
        ("redis+sentinel://u:hunter#2@h/s", "%23"),
        ("redis+sentinel://u:hunter2@h/s?db=1", "%3F"),
        ("redis+cluster://u:hunter2@[::1/", "hosts"),
        ("redis+cluster://u:hunter2@::1", "hosts"),
        ("redis+cluster://u:hunter2@h/1", "database 0"),
        ("redis+cluster://u:hunter2@h/0/1", "database 0"),
    ],
)
def test_invalid_urls(url, words):
    """Anything else is refused, and the error has no part of a password."""
    with pytest.raises(ValueError, match=words) as caught:
        parse_url(url)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


STARTS = [
    *("", "redis://", "unix://", "redis://u:p@h"),
    *("redis+sentinel://", "redis+sentinel://u:p@h/s", "redis+cluster://h"),
]


@given(st.text(max_size=40), st.sampled_from(STARTS))
def test_nothing_else_is_raised(text, start):
    """Whatever the URL, there is an address or a ValueError."""
    with suppress(ValueError):
        assert parse_url(start + text).label


def test_passwords_come_from_the_environment(tmp_path):
    """The servers' password and the Sentinels' have a variable each, or a file."""
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    environ = {"GATEWAY_STORE_PASSWORD": "data", "GATEWAY_SENTINEL_PASSWORD_FILE": str(file)}
    address = read_address("redis+sentinel://app@h/s", environ)
    assert (address.username, address.password) == ("app", "data")
    assert address.sentinel_password == "hunter2"
    assert not {"data", "hunter2"} & set(repr(address).split("'"))
    one = address.at("h", 1)
    assert (one.username, one.password, one.sentinel_password) == ("app", "data", None)


def test_whether_a_url_has_a_password():
    """A password in a URL is detected, even if the URL cannot be parsed."""
    assert has_password("redis://:p@h")
    assert has_password("redis://u:p@[::1")
    assert not has_password("redis://u@h")
    assert not has_password("redis://h")


def test_a_secret_from_the_environment(tmp_path):
    """A secret is the variable, or the file's content without the end of its line."""
    file = tmp_path / "secret"
    file.write_text("\ufefffrom file\n")
    assert secret_from_env("S", {}) is None
    assert secret_from_env("S", {"S": ""}) is None
    assert secret_from_env("S", {"S": "value"}) == "value"
    assert secret_from_env("S", {"S_FILE": str(file)}) == "from file"
    file.write_text("")
    assert secret_from_env("S", {"S_FILE": str(file)}) is None


def test_secrets_that_cannot_be_had(tmp_path):
    """Two sources, or an unreadable file, are reported without the secret."""
    file = tmp_path / "secret"
    with pytest.raises(ValueError, match="both S and S_FILE") as caught:
        secret_from_env("S", {"S": "hunter2", "S_FILE": str(file)})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match=r"S_FILE: .*No such file"):
        secret_from_env("S", {"S_FILE": str(file)})
    with pytest.raises(ValueError, match=r"S_FILE: /dev/null .*a device, not a regular file"):
        secret_from_env("S", {"S_FILE": "/dev/null"})
    file.write_bytes(b"x" * 65_537)
    with pytest.raises(ValueError, match="longer than 65536 bytes"):
        secret_from_env("S", {"S_FILE": str(file)})
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        secret_from_env("S", {"S_FILE": str(file)})


def test_tls_checks_certificates():
    """rediss:// has a context that checks certificate and name; the others have none."""
    context = ssl_context(parse_url("rediss://h"))
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert ssl_context(parse_url("redis://h")) is None


def certified(made, **more):
    return {
        "GATEWAY_STORE_CERTIFICATE": str(made.certificate),
        "GATEWAY_STORE_CERTIFICATE_KEY": str(made.key),
        **more,
    }


@pytest.mark.parametrize(
    "url", ["rediss://h", "rediss+cluster://h", "rediss+sentinel://h/s", "REDISS://h"]
)
def test_a_certificate_of_ours(tmp_path, url):
    """The client certificate is presented to each server of an address, by redis-py as well."""
    made = make_certificate(tmp_path, ["gateway"])
    address = read_address(url, certified(made))
    for one in (address, address.at("h2", 7000)):
        assert (one.certificate, one.certificate_key) == (str(made.certificate), str(made.key))
        options = client_options(one, 1.0)
        assert options["ssl_certfile"] == str(made.certificate)
        assert options["ssl_keyfile"] == str(made.key)
    assert ssl_context(address) is not None


def test_certificates_that_cannot_be_used(tmp_path):
    """Half a pair, a pair without TLS and files that do not match are reported by variable."""
    made = make_certificate(tmp_path, ["gateway"])
    other = make_certificate(tmp_path / "other", ["gateway"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for url, environ, words in (
        ("rediss://h", {"GATEWAY_STORE_CERTIFICATE": "x"}, "CERTIFICATE_KEY is not, set both"),
        ("rediss://h", {"GATEWAY_STORE_CERTIFICATE_KEY": "x"}, "CERTIFICATE is not, set both"),
        ("redis://h", certified(made), "not one of TLS; expected rediss://"),
        ("unix:///s", certified(made), "not one of TLS"),
        ("rediss://h", certified(made, GATEWAY_STORE_CERTIFICATE="/nowhere"), "No such file"),
        ("rediss://h", certified(made, GATEWAY_STORE_CERTIFICATE=str(pipe)), "it is a named pipe"),
        (
            "rediss://h",
            certified(made, GATEWAY_STORE_CERTIFICATE_KEY=str(other.key)),
            f"GATEWAY_STORE_CERTIFICATE {made.certificate} and .* cannot be used: .*MISMATCH",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            read_address(url, environ)
    assert read_address("redis://h", {}).certificate == ""


@needs("openssl")
def test_a_key_under_a_password(tmp_path):
    """It is refused; there is no prompt at the terminal."""
    made, locked = make_certificate(tmp_path, ["gateway"]), tmp_path / "locked.key"
    words = ["openssl", "pkey", "-in", made.key, "-out", locked, "-aes256", "-passout", "pass:x"]
    subprocess.run(words, check=True)
    with pytest.raises(ValueError, match="cannot be used"):
        read_address("rediss://h", certified(made._replace(key=locked)))


def test_missing_authorities(tmp_path, monkeypatch):
    """A variable that names no authorities is a fault, though OpenSSL would ignore it."""
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    empty = tmp_path / "empty.pem"
    empty.touch()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    missing = (tmp_path / "none.pem", "No such file")
    for file, words in (missing, (empty, "cannot be used"), (pipe, "it is a named pipe")):
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with pytest.raises(ValueError, match=f"SSL_CERT_FILE: {file}.*{words}"):
            read_address("rediss://h", {})
        assert read_address("redis://h", {}).tls is False
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere:/nor/here")
    with pytest.raises(ValueError, match="SSL_CERT_DIR: /nowhere"):
        read_address("rediss://h", {})
    monkeypatch.setenv("SSL_CERT_DIR", f"/nowhere:{tmp_path}")
    assert read_address("rediss://h", {}).tls


def test_redis_py_checks_certificates():
    """A client of rediss:// checks the name in the certificate, whatever redis-py's default is."""
    assert client_options(parse_url("rediss+cluster://h"), 1.0)["ssl_check_hostname"] is True
    assert "ssl" not in client_options(parse_url("redis+cluster://h"), 1.0)


def test_memory_has_no_client():
    """memory:// has no client."""
    with pytest.raises(ValueError, match="memory://"):
        redis_client(parse_url("memory://"))


async def test_a_client_of_each_kind(redis_server):
    """A client reaches the database that the URL names."""
    client = redis_client(parse_url(f"redis://127.0.0.1:{redis_server.port}/3"))
    await client.set("k", "v")
    await client.aclose()
    with redis_server.client() as plain:
        assert plain.info("keyspace").keys() == {"db3"}
