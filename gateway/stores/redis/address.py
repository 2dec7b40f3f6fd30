"""Where the store is: one URL, read once into a `StoreAddress`.

Understood are redis://, redis+sentinel:// and redis+cluster://, each with a twin rediss… for TLS,
and unix:// and memory://. Everything that talks to the store starts from the address; the
passwords show up in no representation and no message. Certificates are checked against the
machine's authorities, or those that the variables SSL_CERT_FILE and SSL_CERT_DIR name; a server
that wants to see one of ours is shown the one that two further variables name.

An address of Sentinels or of a cluster says whom to ask for the server; `topology` asks.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.files import check_regular, read_regular
from gateway.stores.clients import ClusterClient, MasterClient, PlainClient, Sentinels, bounded

Kind = Literal["tcp", "unix", "memory", "sentinel", "cluster"]

_EXPECTED: Final = (
    "redis://HOST:PORT/DB, rediss://HOST:PORT/DB, redis+sentinel://HOST:PORT,…/SERVICE/DB, "
    "redis+cluster://HOST:PORT,…, unix:///PATH?db=DB or memory://"
)
_SCHEMES: Final = ("redis", "rediss", "unix", "memory")
_MANY: Final = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
#: One host of several. Nothing else gets into a label, a slip of the pen with a password in it.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?", re.ASCII)
#: The variables that passwords come from; each with _FILE behind it names a file instead.
PASSWORD: Final = "GATEWAY_STORE_PASSWORD"  # noqa: S105 - a name
SENTINEL_PASSWORD: Final = "GATEWAY_SENTINEL_PASSWORD"  # noqa: S105 - a name
#: The variables that name the certificate for servers that ask for one, and its key: PEM files.
CERTIFICATE: Final = "GATEWAY_STORE_CERTIFICATE"
CERTIFICATE_KEY: Final = "GATEWAY_STORE_CERTIFICATE_KEY"
#: Far more than any password or token has.
_LARGEST_SECRET: Final = 65_536
_TIMEOUT_S: Final = 2.0
#: As for the workers' own connections. Several hosts that do not answer fit into what anybody waits
#: for (`clients.PATIENCE_S`).
_CONNECT_S: Final = 0.5
#: redis-py would tell each server its own name and version, by a command that the gateway's user
#: need not have: the refusals would fill the server's ACL log. Its later releases call this so.
_NAMELESS: Final[dict[str, Any]] = (
    {"driver_info": None}
    if find_spec("redis.driver_info")
    else {"lib_name": None, "lib_version": None}
)
#: A Sentinel has nothing to compute; one that takes longer is passed over for the next.
_SENTINEL_TIMEOUT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How the store is reached.

    host, port: of "tcp"; path: the socket of "unix"; "memory" uses none of them
    hosts:      of "sentinel" the Sentinels, of "cluster" some of its nodes: (("h1", 26379),)
    service:    what the Sentinels call the master: "mymaster"
    username, password: of the servers that hold the data
    sentinel_password:  of the Sentinels themselves
    certificate, certificate_key: PEM files, of what any of these servers is shown; "": nothing
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
        """One server of these, with the same credentials."""
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
        )


def parse_url(
    url: str, password: str | None = None, sentinel_password: str | None = None
) -> StoreAddress:
    """The address that a store URL names; `password`, where given, stands over the URL's own.

    Raises ValueError. Its words never quote the URL: a slip of the pen may have put a piece of
    the password into any part of it.
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
    """`parse_url` with what the environment says besides: passwords, a certificate.

    Raises ValueError, also where what a connection by TLS takes cannot be read.
    """
    password = secret_from_env(PASSWORD, environ)
    address = parse_url(url, password, secret_from_env(SENTINEL_PASSWORD, environ))
    address = _with_certificate(address, environ)
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
            f"{CERTIFICATE} is set, and the store URL is none of TLS; "
            "expected rediss:// (also as rediss+sentinel:// or rediss+cluster://)"
        )
    return replace(address, certificate=certificate, certificate_key=key)


def has_password(url: str) -> bool:
    """Does the URL carry a password? Then it must not stand on a command line."""
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return "@" in url


def secret_from_env(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The variable `name`, or the content of the file that `name`_FILE names; None: neither.

    Raises ValueError where both are set or the file cannot be read. It has to be a regular file: a
    named pipe would keep the start waiting, deaf to SIGTERM, and a device may have no end.
    """
    value, file = environ.get(name), environ.get(f"{name}_FILE")
    if value and file:
        raise ValueError(f"both {name} and {name}_FILE are set, set one of them")
    if not file:
        return value or None
    try:
        # An editor ends the file's line; no secret ends in one.
        return read_regular(Path(file), _LARGEST_SECRET).decode().rstrip("\r\n") or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{name}_FILE: {file} cannot be read: {reason}") from error


def ssl_context(address: StoreAddress) -> ssl.SSLContext | None:
    """What a connection to the address is wrapped in; None: nothing.

    Raises OSError, which says what cannot be read. The files are read each time: one that was
    renewed is good for the next connection.
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
            # A key under a password fails by the empty one; without, OpenSSL asks the terminal.
            context.load_cert_chain(address.certificate, address.certificate_key, lambda: "")
        except OSError as error:
            raise OSError(f"{files} cannot be used: {_why(error)}") from error
    return context


def check_authorities() -> None:
    """Can the authorities be read that the environment names in place of the machine's?

    Raises OSError. OpenSSL itself says nothing of a file that is not there, and trusts nobody.
    """
    file, folders = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        try:
            check_regular(file)
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
        except OSError as error:
            raise OSError(f"SSL_CERT_FILE: {file} cannot be used: {_why(error)}") from error
    if folders and not any(map(os.path.isdir, folders.split(os.pathsep))):
        raise OSError(f"SSL_CERT_DIR: {folders} is no folder")


def _why(error: OSError) -> str:
    return str((error.reason if isinstance(error, ssl.SSLError) else error.strerror) or error)


def redis_client(address: StoreAddress) -> Redis | RedisCluster:
    """A client of redis-py, for all that is off the hot path; it connects at its first use.

    A command that met a broken connection is sent again: a restart of the store shows as a
    delay. Whatever is sent through it must bear that.
    """
    if address.kind == "memory":
        raise ValueError("memory:// lives inside one gateway, there is nothing to connect to")
    options = client_options(address, _TIMEOUT_S) | {
        "socket_connect_timeout": _CONNECT_S,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
        "retry_on_error": [RedisConnectionError, RedisTimeoutError],
    }
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return bounded(ClusterClient(startup_nodes=nodes, **options))
    options["db"] = address.db
    if address.kind == "sentinel":
        # The pool drops the connections to a master that is none any more.
        master: Redis = sentinel_client(address).master_for(
            address.service, redis_class=MasterClient, **options
        )
        return bounded(master)
    host = address.host or "localhost"
    path = address.path or None
    return bounded(PlainClient(host=host, port=address.port, unix_socket_path=path, **options))


def sentinel_client(address: StoreAddress) -> Sentinels:
    """The Sentinels of an address, to be closed by whoever opened them."""
    options = client_options(address, _SENTINEL_TIMEOUT_S) | {
        "username": None,
        "password": address.sentinel_password,
        # The next Sentinel is a better second try than the same one.
        "retry": Retry(NoBackoff(), 0),
    }
    sentinels = Sentinels(address.hosts, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
    for sentinel in sentinels.sentinels:
        bounded(sentinel)
    return sentinels


def client_options(address: StoreAddress, timeout_s: float) -> dict[str, Any]:
    """What redis-py is told of every server of an address."""
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        **_NAMELESS,
    }
    if address.tls:
        # The older releases of redis-py check a certificate's name only where they are told to.
        options |= {"ssl": True, "ssl_check_hostname": True}
    if address.certificate:
        options |= {"ssl_certfile": address.certificate, "ssl_keyfile": address.certificate_key}
    return options


def _many(
    url: str, scheme: str, password: str | None, sentinel_password: str | None
) -> StoreAddress:
    """An address of several hosts, whose list no library splits."""
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
            raise ValueError(f"{scheme}:// ends with its hosts, a cluster has the database 0 alone")
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
