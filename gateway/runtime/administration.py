"""The admin listener with all that stands behind it: its token, its store, its server.

A supervisor has one, and a gateway that runs in one process. Only these processes see the token and
import what the pages are made with; a worker does without.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gateway.admin.access import Access
from gateway.admin.app import AdminServer, Desk, build_admin
from gateway.admin.readiness import Readiness
from gateway.admin.token import TokenFault, read_token
from gateway.manage.management import Management, build_management
from gateway.manage.policies import Loaded
from gateway.runtime.settings import CannotStart, Settings, authority, naming
from gateway.stores.managed import ManagedStores, open_managed


@dataclass(frozen=True, slots=True)
class Administration:
    """An admin listener that is open.

    url:         "http://127.0.0.1:9901"
    token_place: the variable or the file that a person finds the token in
    """

    port: int
    url: str
    token_place: str


@asynccontextmanager
async def administration(
    settings: Settings,
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
    loaded: Callable[[], Loaded],
    clock_us: Callable[[], int],
    *,
    stores: ManagedStores | None = None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Administration]:
    """The listener of these settings, while it is used. Raises CannotStart.

    settings: with an address of the admin listener, and one of the store
    stores:   those of this process; None: what can be reached at the store's address
    environ:  where a token may be given
    """
    address = settings.admin
    assert address is not None, "there is no admin listener"
    try:
        token = read_token(environ, settings.data)
    except TokenFault as fault:
        raise CannotStart(str(fault)) from fault
    async with AsyncExitStack() as stack:
        store = settings.store
        if stores is None and store is not None and store.kind != "memory":
            stores = await stack.enter_async_context(open_managed(store))
        management = None if stores is None else _manage(stores, loaded, clock_us)
        desk = Desk(Access(token.text), management, settings.admin_hosts)
        server = AdminServer(build_admin(scrape, readiness, desk))
        with naming("--admin", address):
            await server.start(*address)
        stack.push_async_callback(server.stop)
        port = server.port
        yield Administration(port, f"http://{authority(address[0], port)}", token.place)


def _manage(
    stores: ManagedStores, loaded: Callable[[], Loaded], clock_us: Callable[[], int]
) -> Management:
    return build_management(
        keys=stores.keys,
        usage=stores.usage,
        audit=stores.audit,
        counts=stores.counts,
        loaded=loaded,
        clock_us=clock_us,
    )
