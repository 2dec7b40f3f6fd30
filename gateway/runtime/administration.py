"""Opens the admin listener with its token, its stores and its certificate.

It runs in the supervisor, or in a gateway of one process. Only these processes have the admin token
and import the libraries of the console; workers do not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gateway import tasks
from gateway.admin.access import Access
from gateway.admin.app import AdminDeps, build_admin
from gateway.admin.context import now_s
from gateway.admin.listener import MOST_CONNECTIONS, AdminServer
from gateway.admin.readiness import Readiness
from gateway.admin.sessions import Sessions
from gateway.admin.sharing import keep_marked, shared
from gateway.admin.token import STRONG, AdminToken, TokenFault, read_token
from gateway.domain.ports import AdminStore
from gateway.manage.management import Management, build_management
from gateway.manage.policies import Loaded
from gateway.manage.webhooks import Webhooks, build_webhooks
from gateway.observe.registry import Snapshot
from gateway.runtime.certificates import keep_certificates
from gateway.runtime.listening_sockets import bind_admin
from gateway.runtime.policy_recorder import PolicyRecorder
from gateway.runtime.process import raise_limit
from gateway.runtime.settings import CannotStart, Settings, authority
from gateway.stores.admin import MemoryAdminStore
from gateway.stores.managed import ManagedStores, open_managed
from gateway.webhooks.sealing import Sealer

log = logging.getLogger("gateway")

#: How often sessions that ended during an outage are written to the store.
_NOTE_ENDED_S: Final = 5.0
#: Descriptors kept for starting a worker: both ends of its channel, the pipe of subprocess.Popen,
#: /dev/null, and a margin.
_PER_WORKER: Final = 16
#: Descriptors kept for the process itself: its event loop, log, private Redis and policy files.
_OWN: Final = 64
#: Fewer connections would not be enough for a browser and a probe.
_FEWEST: Final = 8


@dataclass(frozen=True, slots=True)
class Administration:
    """An open admin listener.

    url:          "http://127.0.0.1:9901", or https
    token_source: the variable or the file that has the token
    leave:        stops accepting, for a successor, as `AdminServer.leave` does
    """

    port: int
    url: str
    token_source: str
    leave: Callable[[], Awaitable[None]]


@asynccontextmanager
async def administration(
    settings: Settings,
    scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
    readiness: Callable[[], Awaitable[Readiness]],
    loaded: Callable[[], Loaded],
    clock_us: Callable[[], int],
    *,
    snapshot: Callable[[], Snapshot] = Snapshot,
    stores: ManagedStores | None = None,
    workers: int = 0,
    sockets: Sequence[socket.socket] = (),
    environ: Mapping[str, str] = os.environ,
    recorder: PolicyRecorder | None = None,
) -> AsyncIterator[Administration]:
    """Open the admin listener; closed at exit. Raises CannotStart.

    settings: has the addresses of the admin listener and of the store
    clock_us: the host's time, used until the store's time is known
    snapshot: the metrics of the gateway as of its last reports
    stores:   the stores of this process; None: those at the store's address
    workers:  how many worker processes this process starts
    sockets:  bound sockets to listen on; empty: new ones at the settings' address are bound
    environ:  variables that may have the token
    recorder: of the policies that this gateway loads; it runs until exit
    """
    address = settings.admin
    assert address is not None, "there is no admin listener"
    async with AsyncExitStack() as stack:
        store = settings.store
        if stores is None and store is not None and store.kind != "memory":
            opened = open_managed(store, clock_us, lambda: loaded().policy.webhooks)
            stores = await stack.enter_async_context(opened)
        admin_store = MemoryAdminStore() if stores is None else stores.admin
        token = await _token(settings, environ, admin_store)
        sessions = Sessions(token.text, admin_store)
        tasks.keep_running(stack, keep_marked(token, admin_store), "mark of the admin token")
        tasks.keep_running(stack, _keep_noting_ended(sessions), "ended sessions")
        webhooks = None if stores is None else _webhooks(stack, settings, stores, loaded)
        management = None if stores is None else _manage(stores, loaded, snapshot, webhooks)
        if recorder is not None:
            tasks.keep_running(stack, recorder.describe(), "policy changes")
            if management is not None and stores is not None:
                tasks.keep_running(stack, recorder.write(management.history), "policy history")
                tasks.keep_running(stack, recorder.count_keys(stores.keys), "keys of removed plans")
        deps = AdminDeps(
            Access(token.text, token.is_weak),
            sessions,
            management,
            settings.admin_hosts,
            lambda: loaded().policy.admin_proxy,
            lambda: loaded().policy.error_docs,
        )
        certificates = keep_certificates(stack, lambda: loaded().policy.admin_tls, "admin_tls")
        tls = None if certificates is None else lambda: certificates.context
        most = most_connections(raise_limit(), workers)
        server = AdminServer(build_admin(scrape, readiness, deps), tls, most)
        if not sockets:
            sockets = await bind_admin(address)
        stack.push_async_callback(server.stop)
        await server.start(sockets)
        port = server.port
        scheme = "http" if tls is None else "https"
        url = f"{scheme}://{authority(address[0], port)}"
        yield Administration(port, url, token.source, server.leave)


def most_connections(descriptors: int, workers: int) -> int:
    """The largest number of connections that leaves enough descriptors for everything else.

    A request may open a connection to the store, so each connection takes two descriptors.
    """
    left = descriptors - _OWN - workers * _PER_WORKER
    return max(_FEWEST, min(MOST_CONNECTIONS, left // 2))


async def _token(settings: Settings, environ: Mapping[str, str], store: AdminStore) -> AdminToken:
    try:
        token = await asyncio.to_thread(read_token, environ, settings.data)
    except TokenFault as fault:
        raise CannotStart(str(fault)) from fault
    if token.is_weak:
        log.warning(
            "%s: the admin token is weak; use %d characters or more, for example from: "
            "openssl rand -base64 32",
            *(token.source, STRONG),
        )
    return await shared(token, settings.data, store)


async def _keep_noting_ended(sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(_NOTE_ENDED_S)
        await sessions.note_ended(now_s())


def _webhooks(
    stack: AsyncExitStack, settings: Settings, stores: ManagedStores, loaded: Callable[[], Loaded]
) -> Webhooks | None:
    """None: of a gateway without webhooks."""
    opened, master = stores.webhooks, settings.master
    if opened is None or master is None:
        return None
    tasks.keep_running(stack, opened.budget.run(opened.queues), "budget of webhooks")
    return build_webhooks(
        opened,
        stores.audit,
        master.key,
        Sealer(master.key),
        stores.clock_us,
        lambda: loaded().policy.webhooks,
    )


def _manage(
    stores: ManagedStores,
    loaded: Callable[[], Loaded],
    snapshot: Callable[[], Snapshot],
    webhooks: Webhooks | None,
) -> Management:
    return build_management(
        keys=stores.keys,
        usage=stores.usage,
        warnings=stores.warnings,
        audit=stores.audit,
        counts=stores.counters,
        policies=stores.policies,
        connections=stores.connections,
        loaded=loaded,
        clock_us=stores.clock_us,
        snapshot=snapshot,
        webhooks=webhooks,
        customers=stores.customers,
    )
