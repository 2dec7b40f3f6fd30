"""Several gateways on one store, some of them on hosts whose clocks are wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from gateway.domain.limits import UNITS_US, Limit
from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process
from tests.kit.policies import GATEWAY, write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.skewed import clean_up, skewed
from tests.kit.store_tap import StoreTap
from tests.kit.upstream import ScriptedUpstream, reply
from tests.kit.wire import fetch

_HOUR: Final = UNITS_US["hour"]
_SECOND: Final = UNITS_US["second"]

#: The limits by name. The long ones are used up once; the short ones repeatedly.
LONG: Final = {
    "hourly": Limit("hourly", "rate", 300, _HOUR),
    "at-once": Limit("at-once", "rate", 60, _HOUR, burst=200),
    "daily": Limit("daily", "quota", 250, UNITS_US["day"]),
    "wide": Limit("wide", "rate", 200, _HOUR),
    "narrow": Limit("narrow", "rate", 100, _HOUR),
}
SHORT: Final = {
    "edge": Limit("edge", "rate", 50, _SECOND),
    "refilled": Limit("refilled", "rate", 50, _SECOND, burst=80),
}
LIMITS: Final = {**LONG, **SHORT}

#: Which limits a request meets, by its path.
TARGETS: Final = {
    "/hourly": ("hourly",),
    "/at-once": ("at-once",),
    "/daily": ("daily",),
    "/both": ("wide", "narrow"),
    "/wide": ("wide",),
    "/edge": ("edge",),
    "/refilled": ("refilled",),
}
_UNITS: Final = {width_us: unit for unit, width_us in UNITS_US.items()}


@dataclass(slots=True)
class Gateway:
    """One gateway process and its workers. skew_s: how far ahead its clock is."""

    process: Process
    port: int
    admin_port: int
    skew_s: float

    async def is_ready(self) -> bool:
        assert self.process.process.poll() is None, f"the gateway ended: {self.process.output()}"
        try:
            return (await fetch(self.admin_port, "/readyz")).status == 200
        except OSError:
            return False

    async def stop(self) -> None:
        """Stop it and all its processes."""
        await self.process.stop()
        clean_up()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        headers = [("Host", "127.0.0.1")]
        text = (await fetch(self.admin_port, "/metrics", headers=headers)).body.decode()
        families = text_string_to_metric_families(text)
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@dataclass(slots=True)
class Site:
    """keys: a key and its successor, which share every counter; workers: of each gateway"""

    tap: StoreTap
    upstream: ScriptedUpstream
    gateways: list[Gateway]
    keys: tuple[str, str]
    workers: int

    async def metric(self, name: str, **labels: str) -> float:
        """The sum over all gateways."""
        return sum([await gateway.metric(name, **labels) for gateway in self.gateways])


def skews(gateways: int, skew_s: float) -> list[float]:
    """One clock is right, the next ahead, the one after that behind, and so on."""
    return [(0.0, skew_s, -skew_s)[number % 3] for number in range(gateways)]


@asynccontextmanager
async def open_site(
    folder: Path, *, gateways: int, workers: int, skew_s: float
) -> AsyncIterator[Site]:
    """Start everything, with a long store timeout, as the machine may be loaded."""
    async with AsyncExitStack() as stack:
        server = RedisServer()
        stack.callback(server.stop)
        server.start()
        tap = await stack.enter_async_context(StoreTap(server.port))
        upstream = await stack.enter_async_context(ScriptedUpstream(reply(200)))
        policies = write_policies(
            folder / "policies", upstream.url, routes=_routes(), gateway=GATEWAY
        )
        async with Redis(port=server.port) as client:
            keys = RedisKeyStore(client)
            first, record = await add_key(keys, "free", account="exact")
            successor, _ = await add_key(keys, "free", account="exact", lineage=record.lineage)
        site = Site(tap, upstream, [], (first, successor), workers)
        for number, skew in enumerate(skews(gateways, skew_s)):
            gateway = _start(folder / f"gateway-{number}", policies, tap.url, workers, skew)
            stack.push_async_callback(gateway.stop)
            site.gateways.append(gateway)
        for gateway in site.gateways:
            await eventually(gateway.is_ready, "the gateway is ready", READY_S)
        yield site


def _start(folder: Path, policies: Path, store: str, workers: int, skew_s: float) -> Gateway:
    port, admin_port = free_port(), free_port()
    process = Process(
        folder,
        *("serve", "--policies", str(policies), "--store", store, "--workers", str(workers)),
        *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"),
        *("--data", str(folder / "data"), "--access-log", "off"),
        environment=skewed(skew_s),
    )
    return Gateway(process, port, admin_port, skew_s)


def _routes() -> str:
    """The routes of TARGETS, as a policy file."""
    lines = ["routes:"]
    for path, names in TARGETS.items():
        limits = ", ".join(_limit(LIMITS[name]) for name in names)
        lines.append(
            f"  {path[1:]}: {{match: GET {path}, upstream: api, plan_limits: false, "
            f"limits: [{limits}]}}"
        )
    return "\n".join(lines) + "\n"


def _limit(limit: Limit) -> str:
    burst = "" if limit.burst is None else f", burst: {limit.burst}"
    figure = f"{limit.amount}/{_UNITS[limit.window_us]}"
    return f"{{name: {limit.name}, {limit.kind}: {figure}{burst}}}"
