"""The API keys of a run: the same texts for all peers, each stored where a peer reads it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import redis

from gateway.domain import key_format
from gateway.domain.keys import KeyRecord
from gateway.domain.networks import parse_network
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url

SCOPE: Final = "bench:read"
ENVIRONMENT: Final = "production"
#: The plan of most keys, which is never used up, and one that is used up at once.
BENCH_RATE, BENCH_PEAK = 100_000_000, 200_000_000
TINY_RATE, TINY_PEAK = 2, 3
_MONTH_S: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of a run. text: what a client sends; networks: where it may be used from."""

    text: str
    id: str
    plan: str = "bench"
    environment: str = ENVIRONMENT
    scope: str = SCOPE
    expires_s: int = 0
    networks: tuple[str, ...] = ("127.0.0.0/8",)

    @property
    def rate(self) -> int:
        return TINY_RATE if self.plan == "tiny" else BENCH_RATE

    @property
    def peak(self) -> int:
        return TINY_PEAK if self.plan == "tiny" else BENCH_PEAK


def make_key(
    environment: str = ENVIRONMENT, expires_in_s: int = _MONTH_S, **rest: object
) -> ApiKey:
    """A new key, valid for a month by default."""
    text, key_id = key_format.mint(environment, secrets.randbelow)
    expires_s = int(time.time()) + expires_in_s
    return ApiKey(text, key_id, environment=environment, expires_s=expires_s, **rest)  # type: ignore[arg-type]


@dataclass(slots=True)
class KeySet:
    """good: passes everything; tiny: on the plan that is used up at once; unknown: stored nowhere;
    several: as good, on a plan with several limits.

    foreign, expired, elsewhere, unscoped: stored, and refused by one rule each
    many: for requests with a key at random; guesses: as many keys that are stored nowhere
    """

    good: ApiKey = field(default_factory=make_key)
    tiny: ApiKey = field(default_factory=lambda: make_key(plan="tiny"))
    several: ApiKey = field(default_factory=lambda: make_key(plan="several"))
    unknown: ApiKey = field(default_factory=make_key)
    foreign: ApiKey = field(default_factory=lambda: make_key("staging"))
    expired: ApiKey = field(default_factory=lambda: make_key(expires_in_s=-60))
    elsewhere: ApiKey = field(default_factory=lambda: make_key(networks=("10.0.0.0/8",)))
    unscoped: ApiKey = field(default_factory=lambda: make_key(scope="other:read"))
    many: list[ApiKey] = field(default_factory=list)
    guesses: list[ApiKey] = field(default_factory=list)

    def kept(self) -> list[ApiKey]:
        """All keys that peers have stored."""
        good, refused = (self.good, self.tiny, self.several), (self.foreign, self.expired)
        return [*good, *refused, self.elsewhere, self.unscoped, *self.many]


def make_many(count: int) -> list[ApiKey]:
    return [make_key() for _ in range(count)]


def write_gateway_keys(url: str, keys: Sequence[ApiKey], *, is_full: bool) -> None:
    """Write keys to the gateway's store. is_full: with expiry, IP range and scope."""

    async def write() -> None:
        async with open_managed(parse_url(url)) as stores:
            for key in keys:
                await stores.keys.add(record_of(key, is_full=is_full))

    asyncio.run(write())


def record_of(key: ApiKey, *, is_full: bool) -> KeyRecord:
    """Its record. is_full: as in `write_gateway_keys`"""
    return KeyRecord(
        id=key.id,
        digest=key_format.digest(key.text.encode()),
        name="compare",
        account=key.id,
        plan=key.plan,
        environment=key.environment,
        lineage=key.id,
        created_us=time.time_ns() // 1000,
        scopes=(key.scope,) if is_full else (),
        networks=tuple(map(parse_network, key.networks)) if is_full else (),
        expires_us=key.expires_s * 1_000_000 if is_full else None,
    )


def write_nginx_keys(client: redis.Redis, keys: Sequence[ApiKey]) -> None:
    """Write keys where nginx_gate.lua reads them."""
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            values = {
                "digest": key_format.digest(key.text.encode()).hex(),
                "environment": key.environment,
                "expires": key.expires_s,
                "scopes": key.scope,
                "networks": " ".join(key.networks),
                "limit": key.rate,
                "burst": key.peak,
            }
            pipeline.hset(f"apikey:{key.id}", mapping=values)  # type: ignore[arg-type]
        pipeline.execute()


def haproxy_map(keys: Iterable[ApiKey]) -> str:
    """The map of haproxy.cfg. HAProxy has one value per plan: the most in one window."""
    return "".join(
        f"{key.text} {key.id};{key.environment};{key.expires_s};{key.scope};{key.peak}\n"
        for key in keys
    )


def envoy_table(keys: Iterable[ApiKey]) -> str:
    """The table of envoy_gate.lua."""
    return "return {\n" + "".join(map(_envoy_row, keys)) + "}\n"


def _envoy_row(key: ApiKey) -> str:
    networks = ",".join(
        f"{{{int(network[0])},{int(network[-1])}}}" for network in map(ip_network, key.networks)
    )
    return (
        f'["{key.text}"]={{id="{key.id}",plan="{key.plan}",environment="{key.environment}",'
        f'expires={key.expires_s},scope="{key.scope}",networks={{{networks}}}}},\n'
    )


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """A file for wrk_lines.lua, which other users may not read, as it has keys."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return path
