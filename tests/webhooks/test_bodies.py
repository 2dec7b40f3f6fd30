"""The bound of bodies that are read at once, over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.domain.networks import parse_network
from gateway.domain.webhooks.events import Integration
from gateway.webhooks.bodies import LEAST, BodiesFull, BodyBudget
from gateway.webhooks.requests import client_of
from tests.kit.courier_api import CAPTURE, GIVEN, TOKEN, WATCHES, Scene
from tests.kit.eventually import eventually
from tests.kit.wire import Response, Wire, build_request, fetch

OTHER = "0123456789abcdef" * 2
#: A sender has room for four small bodies.
SHARE = 4


@pytest.fixture
def bodies() -> BodyBudget:
    return BodyBudget(4 * SHARE * LEAST)


@pytest.fixture
async def scene(store_client: Any, bodies: BodyBudget) -> AsyncIterator[Scene]:
    async with Scene(store_client, bodies=bodies) as made:
        await made.add_integrations()
        sealed = made.sealer.seal("int_3", ["s" * 20])
        await made.store.add_integration(
            Integration("int_3", "acme", "github", "Code", 1, OTHER, sealed)
        )
        yield made


def headers_from(address: str) -> list[tuple[str, str]]:
    return [("X-Gateway-Courier", TOKEN), ("X-Forwarded-For", address)]


async def begin(scene: Scene, stack: AsyncExitStack, capture: str, address: str) -> Wire:
    """A webhook whose body does not end."""
    wire = await stack.enter_async_context(await Wire.connect(scene.port))
    fields = [*headers_from(address), ("Content-Length", "100")]
    await wire.send(build_request("POST", f"/hooks/{capture}", fields) + b"{")
    return wire


async def capture_at(scene: Scene, capture: str, address: str) -> Response:
    return await fetch(
        scene.port, f"/hooks/{capture}", method="POST", headers=headers_from(address), body=b"{}"
    )


async def test_slow_bodies_to_one_address(scene: Scene, bodies: BodyBudget) -> None:
    """Its share is bounded: others and the API are served, and so is it when they have ended."""
    async with AsyncExitStack() as stack:
        for number in range(SHARE):
            await begin(scene, stack, CAPTURE, f"192.0.2.{number + 1}")
        await eventually(lambda: bodies.held == SHARE * LEAST, "they are read")
        answer = await capture_at(scene, CAPTURE, "192.0.2.99")
        assert (answer.status, answer.json()["code"]) == (503, "TOO_MANY_BODIES")
        assert int(answer["Retry-After"]) >= 1
        # Read, and refused for its signature.
        assert (await capture_at(scene, OTHER, "192.0.2.99")).status == 401
        assert (await scene.send("POST", WATCHES, GIVEN)).status == 201
    await eventually(lambda: bodies.held == 0, "nothing is held")
    assert (await capture_at(scene, CAPTURE, "192.0.2.99")).status == 401
    assert scene.capture.results["github", "bodies_full"] == 1


async def test_slow_bodies_of_one_client(scene: Scene, bodies: BodyBudget) -> None:
    """A client has its share, whatever addresses it sends to."""
    async with AsyncExitStack() as stack:
        for number in range(SHARE):
            await begin(scene, stack, (CAPTURE, OTHER)[number % 2], "192.0.2.1")
        await eventually(lambda: bodies.held == SHARE * LEAST, "they are read")
        assert (await capture_at(scene, OTHER, "192.0.2.1")).status == 503
        assert (await capture_at(scene, OTHER, "192.0.2.2")).status == 401


async def test_a_body_that_grows(scene: Scene, bodies: BodyBudget) -> None:
    """It counts as it arrives, and ends when there is no more room."""
    fields = [*headers_from("192.0.2.1"), ("Content-Length", str(2 * SHARE * LEAST))]
    async with await Wire.connect(scene.port) as wire:
        await wire.send(
            build_request("POST", f"/hooks/{CAPTURE}", fields) + bytes(SHARE * LEAST + 1)
        )
        assert (await wire.read_response("POST")).status == 503
    await eventually(lambda: bodies.held == 0, "nothing is held")


async def test_the_api_has_its_own(scene: Scene, bodies: BodyBudget) -> None:
    """While webhooks fill all there is."""
    async with AsyncExitStack() as stack:
        for number in range(4 * SHARE):
            stack.enter_context(bodies.body(str(number)))
        assert (await capture_at(scene, CAPTURE, "192.0.2.1")).status == 503
        assert (await scene.send("POST", WATCHES, GIVEN)).status == 201
        assert (await scene.send("GET", WATCHES)).status == 200


def test_its_count() -> None:
    """All, and each sender's share; what was refused is not counted."""
    bodies = BodyBudget(8 * LEAST)
    with bodies.body("a") as one:
        one.grow_to(2 * LEAST)
        with pytest.raises(BodiesFull):
            one.grow_to(2 * LEAST + 1)
        with pytest.raises(BodiesFull), bodies.body("b", "a"):
            pass
        assert bodies.held == 2 * LEAST
    assert bodies.held == 0


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 10.0.0.1", "192.0.2.1"),
        ("192.0.2.1, 198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2::3", "2001:db8:1:2::/64"),
        ("nobody", ""),
    ],
)
def test_the_client(forwarded: str, client: str) -> None:
    request = make_mocked_request("POST", "/", headers={"X-Forwarded-For": forwarded})
    assert client_of(request, [parse_network("10.0.0.0/8")]) == client
