"""`AsyncClient`: its tasks. What it has in common with `Client` is in test_client.py."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from gateway_client import AsyncClient, Client, RateLimited

from tests.client.conftest import TRUST
from tests.client.scripted import (
    Gate,
    Scripted,
    Step,
    answer,
    held,
    limited,
    limits,
    refused,
    told,
)
from tests.client.shells import KEY, Clock
from tests.client.test_client import Limiter
from tests.kit.eventually import eventually
from tests.kit.wire import TIMEOUT_S

BUSY = refused(503, "UPSTREAM_BUSY")


def ok(remaining: int = 59, limit: int = 60) -> Step:
    return answer(200, {"done": True}, limits(limit, remaining, 61))


def open_client(server: Scripted, **arguments: Any) -> AsyncClient:
    http = {"verify": TRUST}
    return AsyncClient(**{"api_key": KEY, "base_url": server.url, "http": http, **arguments})


async def reached(gate: Gate) -> None:
    await asyncio.to_thread(gate.reached)


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        name: each
        for name, each in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(each)
    }


def test_it_has_the_methods_of_the_client() -> None:
    """Of the same names and arguments, and its settings are the same."""
    ours, theirs = public(AsyncClient), public(Client)
    assert ours.keys() == theirs.keys()
    for name, each in {**ours, "__init__": AsyncClient.__init__}.items():
        expected = inspect.signature(getattr(Client, name)).parameters
        assert inspect.signature(each).parameters == expected, name
    assert isinstance(vars(AsyncClient)["limits"], property)


async def test_a_task_is_cancelled() -> None:
    """In the middle of a request: the next one is sent, with the pace."""
    gate = Gate()
    with Scripted(held(gate, ok()), ok()) as server:
        async with open_client(server, pace=True) as client:
            task = asyncio.create_task(client.request("GET", "/v1/a"))
            await reached(gate)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.limits is None
            gate.open()
            assert (await client.request("GET", "/v1/a")).status_code == 200


async def test_a_timeout_of_the_caller() -> None:
    """`asyncio.wait_for` ends a request, also one that waits for another, and nothing hangs."""
    gate = Gate()
    with Scripted(held(gate, ok()), ok()) as server:
        async with open_client(server, pace=True) as client:
            first = asyncio.create_task(client.request("GET", "/v1/a"))
            await reached(gate)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.request("GET", "/v1/b"), 0.01)
            gate.open()
            assert (await first).status_code == 200
            assert (await client.request("GET", "/v1/c")).status_code == 200
        assert [got.target for got in server.got] == ["/v1/a", "/v1/c"]


async def test_the_first_of_several_is_cancelled() -> None:
    """Those that wait for its answer go on: one of them learns the limit in its place."""
    gate = Gate()
    with Scripted(held(gate, ok()), ok(59), ok(58), ok(57)) as server:
        async with open_client(server, pace=True) as client:
            first = asyncio.create_task(client.request("GET", "/v1/a"))
            await reached(gate)
            others = [asyncio.create_task(client.request("GET", "/v1/b")) for _ in range(3)]
            first.cancel()
            async with asyncio.timeout(TIMEOUT_S):
                found = await asyncio.gather(*others)
            gate.open()
            assert [each.status_code for each in found] == [200] * 3
            await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("turns", range(16))
async def test_a_cancellation_is_not_lost(clock: Clock, turns: int) -> None:
    """Also one that comes as the task is about to wake, however many turns of the loop later."""
    gate = Gate()
    with Scripted(ok(1, 2), held(gate, ok(0, 2))) as server:
        async with open_client(server, pace=True) as client:
            await client.request("GET", "/v1/a")
            clock.now_s += 31
            first = asyncio.create_task(client.request("GET", "/v1/a"))
            await reached(gate)
            second = asyncio.create_task(client.request("GET", "/v1/a"))  # waits for 30 s
            await asyncio.sleep(0)
            first.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            second.cancel()
            gate.open()
            ended, _ = await asyncio.wait({first, second}, timeout=TIMEOUT_S)
            assert [first.cancelled(), second.cancelled(), len(ended)] == [True, True, 2]


async def test_others_wait_for_the_first_answer() -> None:
    """Nothing is known of the limit before, so the others send when it is there."""
    gate = Gate()
    was_open: list[bool] = []
    later = [told(lambda: was_open.append(gate.is_open), ok(left)) for left in (58, 57)]
    with Scripted(held(gate, ok()), *later) as server:
        async with open_client(server, pace=True) as client:
            tasks = [asyncio.create_task(client.request("GET", "/v1/a")) for _ in range(3)]
            await reached(gate)
            gate.open()
            await asyncio.gather(*tasks)
    assert was_open == [True, True]


async def test_tasks_share_a_pace() -> None:
    """Eight tasks on one client send more than its limit, and nothing is refused."""
    limiter = Limiter(20)
    with Scripted(always=limiter) as server:
        async with open_client(server, pace=True) as client:
            calls = (client.request("GET", f"/v1/{number % 2}/x") for number in range(30))
            found = await asyncio.gather(*calls)
    assert {each.status_code for each in found} == {200}
    assert (limiter.admitted, limiter.refused) == (30, 0)


async def test_a_pace_that_is_too_slow(clock: Clock) -> None:
    """A wait beyond the patience is an error of this task; others go on when it is over."""
    used_up = answer(200, {}, limits(10, 0, 3600))
    with Scripted(used_up, ok()) as server:
        async with open_client(server, pace=True) as client:
            await client.request("GET", "/v1/a")
            calls = (client.request("GET", "/v1/a") for _ in range(3))
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in found] == [RateLimited] * 3
            clock.now_s += 3600
            assert (await client.request("GET", "/v1/a")).status_code == 200


async def test_a_task_is_cancelled_while_it_waits_to_send_again() -> None:
    """Nothing more is sent for it."""
    with Scripted(limited(), ok()) as server:
        async with open_client(server) as client:
            task = asyncio.create_task(client.request("GET", "/v1/a"))
            await eventually(lambda: client.limits is not None, "the 429 is there")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.request("GET", "/v1/b")
        assert [got.target for got in server.got] == ["/v1/a", "/v1/b"]


async def test_retries_do_not_hold_up_others(clock: Clock) -> None:
    """While one task waits to send again, another one is answered."""
    with Scripted(BUSY, ok(), ok()) as server:
        async with open_client(server) as client:
            clock.on_wait_async = lambda: client.request("GET", "/v1/b")
            await client.request("GET", "/v1/a")
        assert [got.target for got in server.got] == ["/v1/a", "/v1/b", "/v1/a"]


async def test_a_batch_is_left() -> None:
    """What is left of it is not sent."""
    with Scripted(answer(200, 1), answer(200, 2)) as server:
        async with open_client(server) as client:
            found = client.batch("/api/a/batch", list("abcdef"), size=2)
            assert [await anext(found), await anext(found)] == [1, 2]
            await found.aclose()
        assert len(server.got) == 2


async def test_clients_of_one_loop() -> None:
    """Each has its own pace: one that waits does not hold up the other."""
    gate = Gate()
    with Scripted(held(gate, ok()), ok()) as first, Scripted(ok(599, 600)) as second:
        async with open_client(first, pace=True) as one, open_client(second, pace=True) as two:
            tasks = [asyncio.create_task(one.request("GET", "/v1/a")) for _ in range(2)]
            await reached(gate)
            await two.request("GET", "/v1/a")
            assert (one.limits, two.limits is None) == (None, False)
            gate.open()
            await asyncio.gather(*tasks)


def test_a_loop_after_another() -> None:
    """It is made without a loop. Each loop has its own client, as a connection is of one loop."""
    with Scripted(ok(), ok()) as server:

        async def once() -> int:
            async with open_client(server, pace=True) as client:
                return (await client.request("GET", "/v1/a")).status_code

        assert [asyncio.run(once()) for _ in range(2)] == [200, 200]
