"""Where the store is: one URL, read once into a `StoreAddress`.

Understood are redis://, rediss:// (TLS), unix:// and memory://. Everything that talks to the
store starts from the address; the password shows up in no representation and no message.
Certificates of rediss:// are checked against the machine's authorities, or those that the
variables SSL_CERT_FILE and SSL_CERT_DIR name.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

Kind = Literal["tcp", "unix", "memory"]

_EXPECTED = "redis://HOST:PORT/DB, rediss://HOST:PORT/DB, unix:///PATH?db=DB or memory://"
_LATER = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How the store is reached.

    host, port: of "tcp"; path: the socket of "unix"; "memory" uses none of them
    """

    kind: Kind
    host: str = ""
    port: int = 0
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    @property
    def label(self) -> str:
        """For messages and logs, without any credentials: "redis://cache:6379/0"."""
        if self.kind == "memory":
            return "memory://"
        if self.kind == "unix":
            return f"unix://{self.path}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.db}"


def parse_url(url: str, password: str | None = None) -> StoreAddress:
    """The address that a store URL names; `password`, where given, stands over the URL's own.

    Raises ValueError. Its words never quote the URL: a slip of the pen may have put a piece of
    the password into any part of it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"the store URL cannot be read, expected {_EXPECTED}") from None
    if parts.scheme in _LATER:
        kind = parts.scheme.partition("+")[2]
        raise ValueError(f"Redis {kind.title()} is not available in this version, use redis://")
    if parts.scheme not in ("redis", "rediss", "unix", "memory") or "//" not in url:
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


def has_password(url: str) -> bool:
    """Does the URL carry a password? Then it must not stand on a command line."""
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return "@" in url


def secret_from_env(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The variable `name`, or the content of the file that `name`_FILE names; None: neither.

    Raises ValueError where both are set or the file cannot be read.
    """
    value, file = environ.get(name), environ.get(f"{name}_FILE")
    if value and file:
        raise ValueError(f"both {name} and {name}_FILE are set, set one of them")
    if not file:
        return value or None
    try:
        # An editor ends the file's line; no secret ends in one.
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n") or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{name}_FILE: {file} cannot be read: {reason}") from error


def ssl_context(address: StoreAddress) -> ssl.SSLContext | None:
    """What a connection to the address is wrapped in; None: nothing."""
    return ssl.create_default_context() if address.tls else None


def redis_client(address: StoreAddress) -> Redis:
    """A client of redis-py, for all that is off the hot path; it connects at its first use.

    A command that met a broken connection is sent again: a restart of the store shows as a
    delay. Whatever is sent through it must bear that.
    """
    if address.kind == "memory":
        raise ValueError("memory:// lives inside one gateway, there is nothing to connect to")
    broken = [RedisConnectionError, RedisTimeoutError]
    return Redis(
        host=address.host or "localhost",
        port=address.port,
        unix_socket_path=address.path or None,
        db=address.db,
        username=address.username,
        password=address.password,
        ssl=address.tls,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
        retry_on_error=list(broken),
        protocol=2,
    )


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
