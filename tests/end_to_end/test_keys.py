"""The life of a key as operators manage it, and its effect in running gateways."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.end_to_end.conftest import Site, build_key
from tests.kit.eventually import eventually
from tests.kit.gateway import accounts_command, create_key, keys_command
from tests.kit.upstream import Exchange, echo
from tests.kit.wire import Wire, bearer, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_new_key_works_at_once(site: Site) -> None:
    """Even a key that was refused before it existed."""
    _, key = await create_key(site.store, site.policies, plan="pro", scope="connectors:read")
    for gateway in (site.gateway, site.other):
        assert (await gateway.fetch("/v1/connectors", key=key)).status == 200


@pytest.mark.parametrize("verb", ["revoke", "suspend"])
async def test_an_end_reaches_open_connections(site: Site, verb: str) -> None:
    """Both gateways refuse it soon after, also on connections on which it was valid."""
    key_id, key = await create_key(site.store, site.policies, plan="enterprise")
    async with AsyncExitStack() as stack:
        wires = [
            await stack.enter_async_context(await Wire.connect(gateway.port))
            for gateway in (site.gateway, site.other)
        ]
        for wire in wires:
            assert (await wire.request("GET", "/api/x", bearer(key))).status == 200
        await keys_command(site.store, verb, key_id)

        async def refused() -> bool:
            answers = [await wire.request("GET", "/api/x", bearer(key)) for wire in wires]
            return {answer.status for answer in answers} == {401}

        await eventually(refused, f"{verb} reaches both gateways")
        if verb == "suspend":
            await keys_command(site.store, "resume", key_id)

            async def served() -> bool:
                answers = [await wire.request("GET", "/api/x", bearer(key)) for wire in wires]
                return {answer.status for answer in answers} == {200}

            await eventually(served, "resume reaches both gateways")


async def test_a_suspended_account_reaches_all_its_keys(site: Site) -> None:
    """Both gateways refuse all of its keys and end their streams, until it is resumed."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
        )
        await asyncio.Event().wait()

    fields = {"plan": "enterprise", "account": "halted"}
    texts = [(await create_key(site.store, site.policies, **fields))[1] for _ in range(2)]
    asked = [(gateway, key) for gateway in (site.gateway, site.other) for key in texts]

    async def all_get(status: int) -> bool:
        answers = [await gateway.fetch("/api/x", key=key) for gateway, key in asked]
        return {answer.status for answer in answers} == {status}

    # A busy machine may answer a first look-up too late: 503.
    await eventually(lambda: all_get(200), "both gateways know the keys")
    site.upstream.script = script
    async with await Wire.connect(site.gateway.port) as stream:
        await stream.send(build_request("GET", "/api/stream", bearer(texts[0])))
        await stream.read_head()
        await accounts_command(site.store, "suspend", "halted")
        async with asyncio.timeout(20):
            await stream.read_chunk()
            await stream.read_end()
    site.upstream.script = echo
    await eventually(lambda: all_get(401), "the suspension reaches both gateways")
    refused = await site.gateway.fetch("/api/x", key=texts[1])
    assert refused.json()["code"] == "INVALID_API_KEY"
    assert "The account of this API key is suspended" in refused.json()["message"]
    await accounts_command(site.store, "resume", "halted")
    await eventually(lambda: all_get(200), "the resumption reaches both gateways")


async def test_rotation_shares_one_budget(site: Site) -> None:
    """Both keys are valid during the overlap, on either gateway, and count together."""
    key_id, old = await create_key(site.store, site.policies, plan="free")
    assert (await site.gateway.fetch("/api/x", key=old))["X-RateLimit-Remaining"] == "59"
    made = await keys_command(site.store, "rotate", key_id, "--overlap", "1h")
    new = made["key"]
    assert (made["id"], new) != (key_id, old)
    asked = [
        (site.gateway, new),
        (site.other, old),
        (site.other, new),
        (site.gateway, old),
    ]
    for remaining, (gateway, key) in zip(range(58, 54, -1), asked, strict=True):
        answer = await gateway.fetch("/api/x", key=key)
        assert (answer.status, answer["X-RateLimit-Remaining"]) == (200, str(remaining))


async def test_a_narrowed_key_is_narrow_at_once(site: Site) -> None:
    """Rotation without an overlap ends the old key; the new one is valid."""
    key_id, old = await create_key(site.store, site.policies, plan="free")
    assert (await site.gateway.fetch("/api/x", key=old)).status == 200
    made = await keys_command(site.store, "rotate", key_id, "--overlap", "0s")

    async def ended() -> bool:
        return (await site.gateway.fetch("/api/x", key=old)).status == 401

    await eventually(ended, "the old key ends")
    assert (await site.gateway.fetch("/api/x", key=made["key"])).status == 200


async def test_a_key_that_was_not_there_yet(site: Site) -> None:
    """A gateway that has refused a key as unknown serves it soon after its creation."""
    key, record = build_key("free")
    assert (await site.gateway.fetch("/api/x", key=key)).status == 401
    await site.keys.add(record)

    async def served() -> bool:
        return (await site.gateway.fetch("/api/x", key=key)).status == 200

    await eventually(served, "the new key is seen")
