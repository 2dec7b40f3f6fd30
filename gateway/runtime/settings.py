"""The settings of a gateway, and the error for why it cannot start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes

from gateway.domain.upstreams import Server
from gateway.domain.webhooks.settings import COURIER_HEADER
from gateway.stores.redis.address import StoreAddress
from gateway.webhooks.master import Master


@dataclass(frozen=True, slots=True)
class CourierAddress:
    """Where the couriers' HTTP application is. token: what shows it that a gateway is asking"""

    server: Server
    token: str = field(repr=False)

    @property
    def upstream_server(self) -> Server:
        """The server of the upstream `webhooks`."""
        return replace(self.server, lines=f"{COURIER_HEADER}: {self.token}\r\n".encode("ascii"))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one gateway.

    policies:    the folder of policy files, watched for changes
    listen:      the address for clients; port 0: any free one
    admin:       the address of the admin listener; None: there is none
    store:       the store's address; None: a private Redis under `data`
    access_log:  a path, "-" for standard output, "off", "syslog:…" or "udp://HOST:PORT"
    worker:      index of this worker from 0, and number of workers: (0, 1)
    admin_hosts: host names that the admin listener accepts, beside IP addresses and localhost
    take_over:   take over from the gateway that runs at this address
    mcp_secret:  seals the sessions of MCP servers where the policies have no secrets for that
    listen_http: the address whose requests are redirected to `listen` by https; None: there is none
    couriers:    where the couriers are; None: there are none
    master:      the webhook key, for couriers alone
    """

    policies: Path
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    admin: tuple[str, int] | None = ("127.0.0.1", 9901)
    store: StoreAddress | None = None
    data: Path = Path(".gateway")
    access_log: str = "off"
    worker: tuple[int, int] = (0, 1)
    admin_hosts: tuple[str, ...] = ()
    take_over: bool = False
    listen_http: tuple[str, int] | None = None
    couriers: CourierAddress | None = None
    master: Master | None = None
    mcp_secret: bytes = field(default_factory=lambda: token_bytes(32), repr=False)


class CannotStart(Exception):
    """Why the gateway cannot start, in one line that names the option to change."""


@contextmanager
def naming(option: str, address: tuple[str, int]) -> Iterator[None]:
    """Turn an OSError into a CannotStart that names the option and its address."""
    try:
        yield
    except OSError as error:
        where = authority(*address)
        raise CannotStart(f"{option} {where}: {error.strerror or error}") from error


def authority(host: str, port: int) -> str:
    """An address as in a URL: "127.0.0.1:8080", "[::1]:8080"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
