"""The admin listener's connections: how many, how long each may wait, and TLS.

On both event loops: the gateway runs on uvloop, its other tests on asyncio's own.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.admin import listener
from gateway.domain.policy import Tls
from gateway.runtime.certificates import build_context
from tests.kit.admin_listener import SLOW_HEAD, Scene, all_closed, read_to_end, serving
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.loops import on_each_loop
from tests.kit.wire import TIMEOUT_S, fetch

# -- room ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", SLOW_HEAD, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"]
)
@on_each_loop
async def test_one_that_waits_makes_room(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is complete at once is answered while all connections wait for more bytes."""
    monkeypatch.setattr(listener, "_STOP_S", 0.05)  # for bodies that never come
    async with serving(most=4) as scene:
        clients = [await scene.slow_client(sent or b"\r\n") for _ in range(4)]
        assert (await fetch(scene.port, "/now")).body == b"now"
        assert len(scene.server.connections) <= 4
        reading = [asyncio.ensure_future(read_to_end(client)) for client in clients]
        ended, others = await asyncio.wait(reading, return_when="FIRST_COMPLETED")
        assert [one.result() for one in ended] in ([b""], [b"reset"])
        for one in others:
            one.cancel()
        await asyncio.wait(others)
        await eventually(lambda: len(scene.server.connections) == 3, "the others are left")


@on_each_loop
async def test_a_thousand_of_them_block_no_other() -> None:
    """Each of many requests is answered, and the connections never exceed their limit."""
    async with serving(most=8) as scene:
        for number in range(200):
            await (await scene.client()).send(SLOW_HEAD)
            if number % 20 == 0:
                assert (await fetch(scene.port, "/now")).status == 200
            assert len(scene.server.connections) <= 8
        for client in scene.clients:
            client.close()
        await all_closed(scene)


@on_each_loop
async def test_a_request_in_progress_is_not_closed() -> None:
    """A new connection is refused instead, and the others get their answers."""
    async with serving(most=2) as scene:
        held = [asyncio.ensure_future(fetch(scene.port, "/held")) for _ in range(2)]
        await eventually(lambda: scene.held == 2, "both are in progress")
        refused = await scene.client()
        assert await read_to_end(refused) in (b"", b"reset")
        scene.gate.set()
        assert [answer.body for answer in await asyncio.gather(*held)] == [b"held", b"held"]
        assert (await fetch(scene.port, "/now")).status == 200


@on_each_loop
async def test_an_unread_answer_makes_room() -> None:
    """A client that does not read its answer is closed when others need the connection."""
    async with serving(most=1) as scene:
        client = await scene.client()
        await client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.read_until(b"200 OK")
        assert (await fetch(scene.port, "/now")).status == 200


@on_each_loop
async def test_a_full_room_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not for each connection of a flood."""
    async with serving(most=1) as scene:
        for _ in range(5):
            await scene.slow_client()
        await fetch(scene.port, "/now")
    lines = [line for line in caplog.messages if "all 1 connections" in line]
    assert len(lines) == 1


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and a client's TLS context."""
    made = make_certificate(tmp_path, ["127.0.0.1"])
    server = build_context(Tls(str(made.certificate), str(made.key)))
    return server, ssl.create_default_context(cafile=made.ca)


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def asked_by_tls(port: int, client: ssl.SSLContext) -> bytes:
    """The whole answer to GET /now; the other end closes properly."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    writer.write(b"GET /now HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(TIMEOUT_S):
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


@on_each_loop
async def test_it_speaks_tls(tls: Contexts) -> None:
    """With a context; a client in clear text gets no answer."""
    server, client = tls
    async with serving(tls=server) as scene:
        assert (await asked_by_tls(scene.port, client)).endswith(b"\r\n\r\nnow")
        clear = await scene.client()
        await clear.send(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP/1.1" not in await read_to_end(clear)
        await all_closed(scene)


@on_each_loop
async def test_a_handshake_has_a_deadline(monkeypatch: pytest.MonkeyPatch, tls: Contexts) -> None:
    """Like a head."""
    monkeypatch.setattr(listener, "HEAD_S", 0.05)
    async with serving(tls=tls[0]) as scene:
        client = await scene.slow_client(b"\x16\x03\x01")
        assert b"HTTP" not in await read_to_end(client)
        await all_closed(scene)


@on_each_loop
async def test_a_handshake_counts_and_makes_room(
    tls: Contexts, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections amid their handshake are bounded, too, and make room for others."""
    server, client = tls
    async with serving(most=4, tls=server) as scene:
        for _ in range(4):
            await scene.slow_client(b"\x16\x03\x01")
        for _ in range(8):
            await scene.client()
        assert (await asked_by_tls(scene.port, client)).endswith(b"now")
        assert len(scene.server.connections) <= 4
        for each in scene.clients:
            each.close()
        await all_closed(scene)
    assert [line for line in caplog.messages if "connections are in use" not in line] == []


# -- the end ---------------------------------------------------------------------------------------


@on_each_loop
async def test_a_stop_ends_all(tls: Contexts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait, those with a request in progress, and those amid their handshake."""
    monkeypatch.setattr(listener, "_STOP_S", 0.05)
    async with serving() as scene:
        waiting = await scene.slow_client()
        held = await scene.client()
        await held.send(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: scene.held == 1, "it is in progress")
        await scene.server.stop()
        for client in (waiting, held):
            assert b"200" not in await read_to_end(client)
    async with serving(tls=tls[0]) as scene:
        client = await scene.slow_client(b"\x16\x03\x01")
        await scene.server.stop()
        assert b"HTTP" not in await read_to_end(client)


@on_each_loop
async def test_it_can_be_stopped_again_and_before_it_starts() -> None:
    """A failed start may call it for parts that have not started."""
    async with serving() as scene:
        await scene.server.stop()
    never = Scene(1, None).server
    await never.stop()
    assert len(never.connections) == 0
