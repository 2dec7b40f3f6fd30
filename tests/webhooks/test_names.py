"""Names of receivers over a real DNS: what is asked, for how long it is used, and what hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.proxy import resolver as proxy_resolver
from gateway.webhooks.names import LEAST_S, MOST_S, Names, NoAnswer
from tests.kit.dns_server import ScriptedDns
from tests.kit.eventually import eventually

GOOD = ("good.test", "A")
HANGS = ".hangs.test"
#: Far longer than a test takes.
LONG_S = 600.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def names(folder: Path, **options: object) -> AsyncIterator[tuple[Names, ScriptedDns]]:
    """Of a DNS that knows one name, and answers nothing about some."""
    async with ScriptedDns({GOOD: ["127.0.0.2", "127.0.0.3"]}) as dns_server:
        dns_server.silent = HANGS
        resolver = dns_server.resolver(folder, asks_system=False)
        yield Names(resolver, **options), dns_server  # type: ignore[arg-type]


async def found(made: Names, host: str) -> list[str]:
    """Sorted: the DNS of tests answers in any order."""
    return sorted(await made.of(host))


async def test_all_addresses(tmp_path: Path) -> None:
    async with names(tmp_path) as (made, _):
        assert await found(made, "good.test") == ["127.0.0.2", "127.0.0.3"]


@pytest.mark.parametrize(("ttl_s", "used_s"), [(0, LEAST_S), (7, 7.0), (86_400, MOST_S)])
async def test_how_long_an_answer_is_used(tmp_path: Path, ttl_s: int, used_s: float) -> None:
    """As long as its time to live, but briefly."""
    clock = Clock()
    async with names(tmp_path, now_s=clock) as (made, dns_server):
        dns_server.ttl_s = ttl_s
        await found(made, "good.test")
        dns_server.records[GOOD] = ["127.0.0.9"]
        clock.now_s += used_s - 0.1
        assert await found(made, "good.test") == ["127.0.0.2", "127.0.0.3"]
        clock.now_s += 0.2
        assert await found(made, "good.test") == ["127.0.0.9"]
        assert dns_server.asked.count(GOOD) == 2


async def test_a_name_without_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is not asked, which takes a thread; and it is looked up again the next time."""
    asked: list[str] = []

    async def by_system(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(proxy_resolver, "_by_system", by_system)
    async with names(tmp_path) as (made, dns_server):
        for host in ("absent.test", "a" * 64 + ".test", "0x7f.1"):
            with pytest.raises(OSError, match="the name has no address"):
                await found(made, host)
        dns_server.records["absent.test", "A"] = ["127.0.0.4"]
        assert await found(made, "absent.test") == ["127.0.0.4"]
    assert asked == []


async def test_names_that_hang(tmp_path: Path) -> None:
    """A hundred of them. Others are found meanwhile: a new one, and one that was found before.

    Their queries, two each, fit into the buffer of a socket: of more, those at the end are lost.
    """
    clock = Clock()
    async with names(tmp_path, limit_s=LONG_S, now_s=clock) as (made, dns_server):
        await found(made, "good.test")
        clock.now_s += MOST_S
        dns_server.records["new.test", "A"] = ["127.0.0.4"]
        hanging = [asyncio.ensure_future(found(made, f"{at}{HANGS}")) for at in range(100)]
        await eventually(
            lambda: len({host for host, _ in dns_server.asked}) == 101, "all are looked up"
        )
        assert await found(made, "new.test") == ["127.0.0.4"]
        assert await found(made, "good.test") == ["127.0.0.2", "127.0.0.3"]
        assert not any(each.done() for each in hanging)
        await ended(hanging)


async def test_more_names_hang_than_are_looked_up_at_once(tmp_path: Path) -> None:
    """One that was found before does not wait for them; a new one waits in line."""
    clock = Clock()
    async with names(tmp_path, most_at_once=4, limit_s=LONG_S, now_s=clock) as (made, dns_server):
        await found(made, "good.test")
        clock.now_s += MOST_S
        dns_server.records["new.test", "A"] = ["127.0.0.4"]
        hanging = [asyncio.ensure_future(found(made, f"{at}{HANGS}")) for at in range(4)]
        await asyncio.sleep(0)
        new = asyncio.ensure_future(found(made, "new.test"))
        assert await found(made, "good.test") == ["127.0.0.2", "127.0.0.3"]
        assert ("new.test", "A") not in dns_server.asked
        await ended(hanging[:1])
        assert await new == ["127.0.0.4"]
        await ended(hanging)


async def test_a_look_up_that_is_late(tmp_path: Path) -> None:
    """It fails in time, for all that wait for it."""
    async with names(tmp_path, limit_s=0.2) as (made, _):
        waiting = [asyncio.ensure_future(found(made, f"a{HANGS}")) for _ in range(3)]
        for each in waiting:
            with pytest.raises(NoAnswer):
                await each


async def test_one_look_up_for_each_name(tmp_path: Path) -> None:
    """Whoever needs the name waits for it; it goes on while anyone does."""
    async with names(tmp_path, limit_s=LONG_S) as (made, dns_server):
        all_found = await asyncio.gather(*(found(made, "good.test") for _ in range(50)))
        assert all_found == [["127.0.0.2", "127.0.0.3"]] * 50
        assert dns_server.asked.count(GOOD) == 1
        other = ("other.test", "A")
        dns_server.silent = "other.test"
        first, second = (asyncio.ensure_future(found(made, "other.test")) for _ in range(2))
        await eventually(lambda: other in dns_server.asked, "it is looked up")
        await ended([first])
        dns_server.silent, dns_server.records[other] = None, ["127.0.0.4"]
        # The query is sent again, as it may have been lost.
        assert await second == ["127.0.0.4"]


async def test_a_look_up_that_nobody_waits_for(tmp_path: Path) -> None:
    """It ends, and leaves its place in line."""
    async with names(tmp_path, most_at_once=1, limit_s=LONG_S) as (made, dns_server):
        hanging = [asyncio.ensure_future(found(made, f"{at}{HANGS}")) for at in range(3)]
        await eventually(lambda: dns_server.asked != [], "one is looked up")
        await ended(hanging)
        assert await found(made, "good.test") == ["127.0.0.2", "127.0.0.3"]
        assert {host for host, _ in dns_server.asked} == {f"0{HANGS}", "good.test"}


async def test_the_most_names(tmp_path: Path) -> None:
    """Those that were found longest ago make room."""
    async with names(tmp_path, most_names=2) as (made, dns_server):
        for host in ("a.test", "b.test", "c.test"):
            dns_server.records[host, "A"] = ["127.0.0.4"]
            await found(made, host)
        asked = len(dns_server.asked)
        await found(made, "c.test")
        await found(made, "b.test")
        assert len(dns_server.asked) == asked
        await found(made, "a.test")
        assert len(dns_server.asked) > asked


async def ended(waiting: list[asyncio.Task[list[str]]]) -> None:
    """They are cancelled, and have ended."""
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
