"""A receiver, a provider with a watch for each endpoint, and the gateways that a test starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.hooks import (
    ENVIRONMENT,
    LEASE_ENDS_S,
    Account,
    Provider,
    Receiver,
    Sent,
    add_account,
    write_hook_policies,
)

PATHS = ("/a", "/b", "/c", "/d")
#: The most of each watch in flight: `webhooks.per_watch`.
EACH = 8


class Site:
    """Everything but the gateways has started. store: its URL"""

    def __init__(
        self, folder: Path, store: str, receiver: Receiver, ca: Path, account: Account
    ) -> None:
        self.folder = folder
        self.store = store
        self.receiver = receiver
        self.account = account
        self.paths = tuple(account.watches)
        self.provider = Provider(account.integration)
        self.policies = write_hook_policies(folder / "policies", ca)
        self.stack = AsyncExitStack()
        self._count = 0

    async def gateway(
        self,
        *arguments: str,
        before: ServedGateway | None = None,
        couriers: int = 1,
        python_path: str = "",
    ) -> ServedGateway:
        """A gateway that is ready.

        before: whose ports and data it has; python_path: of modules that it imports first
        """
        self._count += 1
        started = ServedGateway(
            self.folder / f"gateway-{self._count}",
            self.policies,
            self.store,
            *("--couriers", str(couriers), *arguments),
            ports=None if before is None else (before.port, before.admin_port),
            data=self.folder / "data",
            environment={**ENVIRONMENT, **({"PYTHONPATH": python_path} if python_path else {})},
        )
        return await self.stack.enter_async_context(started)

    async def in_flight(self, gateway: ServedGateway, events: int) -> set[Sent]:
        """Capture events, of which the receiver holds as many as may be in flight."""
        most = EACH * len(self.paths)
        self.receiver.hold()
        before = len(self.receiver.got)
        await self.provider.send_accepted(gateway, events)

        def has_all() -> bool:
            return len(self.receiver.got) - before >= most

        await eventually(has_all, "as many as may be are in flight", LEASE_ENDS_S)
        assert len(self.receiver.got) - before == most
        return {sent for sent, _ in self.receiver.got[before:]}

    async def all_arrive(self) -> None:
        def is_all() -> bool:
            return not self.lost

        try:
            await eventually(is_all, "all arrive", LEASE_ENDS_S)
        finally:
            print(f"lost {len(self.lost)} of {len(self.provider.accepted) * len(self.paths)}")

    async def arrive(self, path: str) -> None:
        """All events arrive at one endpoint."""

        def is_all() -> bool:
            return not self.receiver.lacks(self.provider.accepted, [path])

        await eventually(is_all, f"all arrive at {path}", LEASE_ENDS_S)

    def times_at(self, path: str) -> dict[str, int]:
        """How often each event has arrived at one endpoint."""
        times = self.receiver.times
        return {event: times[event, at] for event, at in times if at == path}

    @property
    def lost(self) -> set[Sent]:
        """What was answered 202, and has not arrived."""
        return self.receiver.lacks(self.provider.accepted, self.paths)

    @property
    def twice(self) -> set[Sent]:
        """What has arrived more than once."""
        return {sent for sent, times in self.receiver.times.items() if times > 1}


@asynccontextmanager
async def open_site(
    folder: Path, store: str, certificate: Certificate, paths: Sequence[str] = PATHS
) -> AsyncIterator[Site]:
    async with Receiver(certificate) as receiver:
        account = await add_account(store, {path: receiver.at(path) for path in paths})
        site = Site(folder, store, receiver, certificate.ca, account)
        async with site.stack:
            yield site
