"""Requests to a courier that cannot be read, and how it stops."""

from __future__ import annotations

import asyncio
import gzip
import hmac
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gateway.proxy import upstream_pool
from gateway.webhooks import listener
from tests.kit.courier_api import CAPTURE, TOKEN, WATCHES, Scene
from tests.kit.eventually import eventually
from tests.kit.wire import Wire, build_request


@pytest.fixture
async def scene(store_client: Any) -> AsyncIterator[Scene]:
    async with Scene(store_client) as made:
        await made.add_integrations()
        yield made


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /whsec_quoted\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nwhsec_quoted\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Type: whsec_quoted\r\nContent-Type: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"\x16\x03\x01 whsec_quoted\r\n\r\n",
    ],
)
async def test_what_cannot_be_read(
    scene: Scene, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """400 in the gateway's form; neither the answer nor the log quotes the request."""
    async with await Wire.connect(scene.port) as wire:
        await wire.send(request_bytes)
        answer = await wire.read_some()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400"
    assert json.loads(body)["code"] == "BAD_REQUEST"
    assert b"aiohttp" not in answer
    assert b"quoted" not in answer
    assert "quoted" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


async def test_compressed_webhooks(scene: Scene) -> None:
    """A provider signs the bytes that it sends: they are verified as they are."""
    body = gzip.compress(b'{"action": "opened", "pull_request": {}}')
    mac = hmac.digest(b"s" * 20, body, "sha256").hex()
    answer = await scene.send(
        "POST",
        f"/hooks/{CAPTURE}",
        body,
        Content_Encoding="gzip",
        X_Hub_Signature_256=f"sha256={mac}",
        X_GitHub_Event="pull_request",
    )
    assert (answer.status, answer.json()["code"]) == (400, "BODY_NOT_JSON")


async def test_its_end(store_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in progress is answered."""
    began, release = asyncio.Event(), asyncio.Event()

    async def held(*_: object) -> list[object]:
        began.set()
        await release.wait()
        return []

    async with Scene(store_client) as scene:
        monkeypatch.setattr(scene.watches, "list", held)
        asked = asyncio.create_task(scene.send("GET", WATCHES))
        await began.wait()
        asyncio.get_running_loop().call_soon(release.set)
    assert (await asked).json() == {"items": [], "next": None}


async def test_an_end_that_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in progress is not waited for any more, and nothing of it is left running."""
    stopping = asyncio.Event()

    async def cleanup(_: object) -> None:
        stopping.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(web.AppRunner, "cleanup", cleanup)
    served = listener.CourierListener(web.Application())
    before = asyncio.all_tasks()
    with socket.create_server(("127.0.0.1", 0)) as at:
        await served.start(at)
        stop = asyncio.ensure_future(served.stop())
        await stopping.wait()
        stop.cancel()
        await asyncio.wait([stop])
        assert asyncio.all_tasks() == before


async def test_a_webhook_that_breaks_off(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted as refused, and is no error of the program."""
    served, captures_to = asyncio.Event(), scene.store.captures_to

    async def note(capture: str) -> Any:
        served.set()
        return await captures_to(capture)

    monkeypatch.setattr(scene.store, "captures_to", note)
    fields = [("X-Gateway-Courier", TOKEN), ("Content-Length", "100")]
    async with await Wire.connect(scene.port) as wire:
        await wire.send(build_request("POST", f"/hooks/{CAPTURE}", fields) + b"{")
        await served.wait()
    results = scene.capture.results
    await eventually(lambda: results == {("github", "body_broken"): 1}, "it was refused")


async def test_half_heads(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request of a worker ends at its deadline; those of workers stay."""
    fields = [("X-Gateway-Courier", TOKEN)]
    async with (
        await Wire.connect(scene.port) as worker,
        await Wire.connect(scene.port) as silent,
        await Wire.connect(scene.port) as slow,
    ):
        await worker.send(build_request("GET", "/", fields))
        assert (await worker.read_response("GET")).status == 404
        await slow.send(b"GET / HTTP/1.1\r\nHost: ")
        monkeypatch.setattr(listener, "STRANGER_S", 0.0)
        assert await silent.read_some() == b""
        assert await slow.read_some() == b""
        await eventually(lambda: not len(scene.listener.strangers), "nothing waits")
        await worker.send(build_request("GET", "/", fields))
        assert (await worker.read_response("GET")).status == 404


async def test_many_strangers(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest are closed, and workers are served."""
    monkeypatch.setattr(listener, "STRANGER_S", 3_600.0)
    monkeypatch.setattr(listener, "MOST_STRANGERS", 3)
    strangers = [await Wire.connect(scene.port) for _ in range(8)]
    try:
        for oldest in strangers[:5]:
            assert await oldest.read_some() == b""
        assert (await scene.send("GET", WATCHES)).status == 200
        await eventually(lambda: len(scene.listener.strangers) <= 3, "the others stay")
        # The newest is open: without the token it is answered 404.
        await strangers[-1].send(build_request("GET", WATCHES, []))
        assert (await strangers[-1].read_response("GET")).status == 404
    finally:
        for stranger in strangers:
            await stranger.close()


def test_workers_close_first() -> None:
    """A worker must not send a request on a connection that is being closed."""
    assert listener.IDLE_S > upstream_pool.IDLE_S
