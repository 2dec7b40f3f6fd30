"""How a gateway is started, and why it may not be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.stores.redis.address import StoreAddress


@dataclass(frozen=True, slots=True)
class Settings:
    """How one gateway is started.

    policies:   the folder of policy files, watched for changes
    listen:     where clients come in; port 0: any free one
    admin:      where metrics, probes, the admin API and the console are; None: nowhere
    store:      the store's address; None: a private Redis under `data`
    access_log: a path, "-" for standard output, or "off"
    worker:     which of how many workers this is, counted from 0: (0, 1)
    admin_hosts: names by which the admin side may be reached, beside addresses and localhost
    take_over:  replaces a gateway that runs at this address: it hands over its sockets, and ends
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


class CannotStart(Exception):
    """Why the gateway does not start, in one line that names the option to change."""


@contextmanager
def naming(option: str, address: tuple[str, int]) -> Iterator[None]:
    """An OSError in here becomes a CannotStart that names the option it is about."""
    try:
        yield
    except OSError as error:
        where = authority(*address)
        raise CannotStart(f"{option} {where}: {error.strerror or error}") from error


def authority(host: str, port: int) -> str:
    """An address as a URL has it: "127.0.0.1:8080", "[::1]:8080"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
