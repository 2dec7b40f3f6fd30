"""The store's address: a URL, parsed once into a `StoreAddress`.

The schemes are redis://, redis+sentinel:// and redis+cluster://, each also as rediss… for TLS, and
unix:// and memory://. Every connection to the store uses the address; no representation and no
message contains a password. Certificates are verified against the machine's authorities, or those
that the variables SSL_CERT_FILE and SSL_CERT_DIR name; two further variables name the certificate
and key of the client, for servers that require one.

Passwords and certificates that are in files are read again for each connection, so that renewed
ones take effect without a restart.

An address of Sentinels or of a cluster names the servers to ask for the master; `topology` does so.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from gateway.files import check_regular, read_regular, reason_of

Kind = Literal["tcp", "unix", "memory", "sentinel", "cluster"]

_EXPECTED: Final = (
    "redis://HOST:PORT/DB, rediss://HOST:PORT/DB, redis+sentinel://HOST:PORT,…/SERVICE/DB, "
    "redis+cluster://HOST:PORT,…, unix:///PATH?db=DB or memory://"
)
_SCHEMES: Final = ("redis", "rediss", "unix", "memory")
_MANY: Final = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
#: One host of several. Nothing else gets into labels: a mistyped URL may have a password in it.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?", re.ASCII)
#: The variables with the passwords; each with _FILE appended names a file instead.
PASSWORD: Final = "GATEWAY_STORE_PASSWORD"  # noqa: S105 - a name
SENTINEL_PASSWORD: Final = "GATEWAY_SENTINEL_PASSWORD"  # noqa: S105 - a name
#: The variables that name the client certificate and its key: PEM files.
CERTIFICATE: Final = "GATEWAY_STORE_CERTIFICATE"
CERTIFICATE_KEY: Final = "GATEWAY_STORE_CERTIFICATE_KEY"
#: Much longer than any password or token.
_LARGEST_SECRET: Final = 65_536


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How the store is reached.

    host, port: of "tcp"; path: the socket of "unix"; "memory" uses none of them
    hosts:      of "sentinel" the Sentinels, of "cluster" some of its nodes: (("h1", 26379),)
    service:    what the Sentinels call the master: "mymaster"
    username, password: of the servers with the data
    sentinel_password:  of the Sentinels themselves
    password_file, sentinel_password_file: the files with the passwords; "": they are in no file
    certificate, certificate_key: PEM files of the client certificate; "": none
    """

    kind: Kind
    host: str = ""
    port: int = 0
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_password: str | None = field(default=None, repr=False)
    certificate: str = ""
    certificate_key: str = ""
    password_file: str = ""
    sentinel_password_file: str = ""

    @property
    def label(self) -> str:
        """For messages and logs, without any credentials: "redis://cache:6379/0"."""
        scheme = "rediss" if self.tls else "redis"
        hosts = ",".join(_host_port(*host) for host in self.hosts)
        if self.kind == "memory":
            return "memory://"
        if self.kind == "unix":
            return f"unix://{self.path}?db={self.db}"
        if self.kind == "sentinel":
            return f"{scheme}+sentinel://{hosts}/{quote(self.service, safe='')}/{self.db}"
        if self.kind == "cluster":
            return f"{scheme}+cluster://{hosts}"
        return f"{scheme}://{_host_port(self.host, self.port)}/{self.db}"

    def at(self, host: str, port: int) -> StoreAddress:
        """The address of one of these servers, with the same credentials."""
        return StoreAddress(
            "tcp",
            host,
            port,
            db=self.db,
            username=self.username,
            password=self.password,
            tls=self.tls,
            certificate=self.certificate,
            certificate_key=self.certificate_key,
            password_file=self.password_file,
        )


def parse_url(
    url: str, password: str | None = None, sentinel_password: str | None = None
) -> StoreAddress:
    """The address that a store URL names; `password`, where given, replaces the URL's own.

    Raises ValueError. Its message never quotes the URL: in a mistyped one, a piece of the password
    may be in any part of it.
    """
    scheme = url.partition("://")[0].lower()
    if scheme in _MANY:
        return _many(url, scheme, password, sentinel_password)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"the store URL cannot be read, expected {_EXPECTED}") from None
    if parts.scheme not in _SCHEMES or "//" not in url:
        raise ValueError(f"the store URL has an unknown scheme, expected {_EXPECTED}")
    if parts.fragment:
        raise ValueError("the store URL has a '#' in it, write it as %23")
    if parts.scheme == "memory":
        return _memory(parts)
    username = unquote(parts.username) if parts.username else None
    password = password or (unquote(parts.password) if parts.password else None)
    if parts.scheme == "unix":
        return _unix(parts, username, password)
    return _tcp(parts, username, password)


def read_address(url: str, environ: Mapping[str, str] = os.environ) -> StoreAddress:
    """`parse_url` with the passwords and the certificate of the environment.

    Raises ValueError, also where the files that TLS needs cannot be read.
    """
    password = secret_from_env(PASSWORD, environ)
    address = parse_url(url, password, secret_from_env(SENTINEL_PASSWORD, environ))
    address = replace(
        _with_certificate(address, environ),
        password_file=environ.get(f"{PASSWORD}_FILE", ""),
        sentinel_password_file=environ.get(f"{SENTINEL_PASSWORD}_FILE", ""),
    )
    try:
        ssl_context(address)
    except OSError as error:
        raise ValueError(str(error)) from error
    return address


def _with_certificate(address: StoreAddress, environ: Mapping[str, str]) -> StoreAddress:
    certificate, key = environ.get(CERTIFICATE, ""), environ.get(CERTIFICATE_KEY, "")
    if bool(certificate) != bool(key):
        named, missing = (
            (CERTIFICATE, CERTIFICATE_KEY) if certificate else (CERTIFICATE_KEY, CERTIFICATE)
        )
        raise ValueError(f"{named} is set and {missing} is not, set both")
    if certificate and not address.tls:
        raise ValueError(
            f"{CERTIFICATE} is set, and the store URL is not one of TLS; "
            "expected rediss:// (also as rediss+sentinel:// or rediss+cluster://)"
        )
    return replace(address, certificate=certificate, certificate_key=key)


def has_password(url: str) -> bool:
    """Does the URL contain a password? Then it must not be on a command line."""
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return "@" in url


def secret_from_env(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The variable `name`, or the content of the file that `name`_FILE names; None: neither is set.

    Raises ValueError where both are set or the file cannot be read. It has to be a regular file: a
    named pipe would block the start, and SIGTERM with it, and a device may have no end.
    """
    value, file = environ.get(name), environ.get(f"{name}_FILE")
    if value and file:
        raise ValueError(f"both {name} and {name}_FILE are set, set one of them")
    if not file:
        return value or None
    try:
        return _read_secret(name, file)
    except OSError as error:
        raise ValueError(str(error)) from error


def _read_secret(name: str, file: str) -> str | None:
    """The content of the file that `name`_FILE names; None: it is empty. Raises OSError."""
    try:
        # Editors end the file with a newline, and may begin it with a mark; no secret does.
        text = read_regular(Path(file), _LARGEST_SECRET).decode("utf-8-sig")
        return text.rstrip("\r\n") or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OSError(f"{name}_FILE: {file} cannot be read: {reason}") from error


def read_password(address: StoreAddress) -> str | None:
    """The password of the servers with the data, as it is in its file now. Raises OSError."""
    if not address.password_file:
        return address.password
    return _read_secret(PASSWORD, address.password_file) or address.password


def read_sentinel_password(address: StoreAddress) -> str | None:
    """The password of the Sentinels, as it is in its file now. Raises OSError."""
    if not address.sentinel_password_file:
        return address.sentinel_password
    return _read_secret(SENTINEL_PASSWORD, address.sentinel_password_file) or (
        address.sentinel_password
    )


def ssl_context(address: StoreAddress) -> ssl.SSLContext | None:
    """The TLS context of a connection to the address; None: no TLS.

    Raises OSError, which names the file that cannot be used. The files are read each time, so that
    the next connection uses renewed ones.
    """
    if not address.tls:
        return None
    check_authorities()
    context = ssl.create_default_context()
    if address.certificate:
        files = (
            f"{CERTIFICATE} {address.certificate} and {CERTIFICATE_KEY} {address.certificate_key}"
        )
        try:
            for file in (address.certificate, address.certificate_key):
                check_regular(file)
            # An encrypted key fails with the empty password; without one OpenSSL asks the terminal.
            context.load_cert_chain(address.certificate, address.certificate_key, lambda: "")
        except OSError as error:
            raise OSError(f"{files} cannot be used: {reason_of(error)}") from error
    return context


def check_authorities() -> None:
    """Check the authorities that the environment names in place of the machine's.

    Raises OSError. OpenSSL itself ignores a missing file, and then trusts no certificate.
    """
    file, folders = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        try:
            check_regular(file)
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
        except OSError as error:
            raise OSError(f"SSL_CERT_FILE: {file} cannot be used: {reason_of(error)}") from error
    if folders and not any(map(os.path.isdir, folders.split(os.pathsep))):
        raise OSError(f"SSL_CERT_DIR: {folders} is no folder")


def _many(
    url: str, scheme: str, password: str | None, sentinel_password: str | None
) -> StoreAddress:
    """An address of several hosts, which no library parses."""
    authority, _, path = url.partition("://")[2].partition("/")
    login, _, listed = authority.rpartition("@")
    username, _, own_password = map(unquote, login.partition(":"))
    for sign, code in (("#", "%23"), ("?", "%3F")):
        if sign in url:
            raise ValueError(f"the store URL has a {sign!r} in it, write it as {code}")
    tls, is_cluster = scheme.startswith("rediss"), scheme.endswith("cluster")
    hosts = tuple(_one_of_many(host, 6379 if is_cluster else 26379) for host in listed.split(","))
    found = StoreAddress(
        "cluster" if is_cluster else "sentinel",
        username=username or None,
        password=password or own_password or None,
        tls=tls,
        hosts=hosts,
    )
    service, _, db = path.rstrip("/").partition("/")
    if is_cluster:
        if service not in ("", "0") or db:
            raise ValueError(f"{scheme}:// ends with its hosts, a cluster only has the database 0")
        return found
    if not service:
        raise ValueError(f"{scheme}:// names no service, expected HOST:PORT,…/SERVICE/DB")
    service, number = unquote(service), _database(db or "0")
    return replace(found, service=service, db=number, sentinel_password=sentinel_password)


def _one_of_many(text: str, usual_port: int) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    port = int(found[3] or usual_port) if found else 0
    if found is None or not 0 < port <= 65_535:
        raise ValueError(
            "the store URL's hosts cannot be read, expected HOST:PORT,HOST:PORT, "
            "an IPv6 address in brackets, and ports from 1 to 65535"
        )
    return found[1] or found[2], port


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _memory(parts: SplitResult) -> StoreAddress:
    if parts.netloc or parts.path.strip("/") or parts.query:
        raise ValueError("memory:// takes nothing after it")
    return StoreAddress("memory")


def _unix(parts: SplitResult, username: str | None, password: str | None) -> StoreAddress:
    if parts.netloc.rpartition("@")[2] or not parts.path.strip("/"):
        raise ValueError("a unix:// URL needs an absolute path, as in unix:///run/redis.sock")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    db = _database(options.pop("db", "0"))
    if options:
        raise ValueError("a unix:// URL takes no other option than db")
    path = unquote(parts.path)
    return StoreAddress("unix", path=path, db=db, username=username, password=password)


def _tcp(parts: SplitResult, username: str | None, password: str | None) -> StoreAddress:
    if parts.query:
        raise ValueError(f"{parts.scheme}:// takes no options, the database follows the port: /0")
    try:
        port = 6379 if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ValueError("the port of the store URL is not a number from 1 to 65535")
    if not parts.hostname:
        raise ValueError(f"the store URL names no host, expected {_EXPECTED}")
    return StoreAddress(
        "tcp",
        host=unquote(parts.hostname),
        port=port,
        db=_database(parts.path.strip("/") or "0"),
        username=username,
        password=password,
        tls=parts.scheme == "rediss",
    )


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise ValueError("the database of the store URL is not a number such as 0")
    return int(text)
