"""Clients that are slow on purpose: each holds a connection as long as possible.

    slow-header  sends a request's head byte by byte, never completely
    slow-body    sends a complete head with a Content-Length, then the body byte by byte
    slow-read    sends a complete request for a long answer, and reads a little at a time

The attacked gateway is on 127.0.0.1. An attack ends when the gateway has closed every connection,
or after its own time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from typing import Final, cast

from loadtests.abuse.attack import Attack, Outcome

#: Connections that are being opened at once.
_OPENERS: Final = 50
#: A slow reader's receive buffer in the kernel, and how much it reads at a time.
_RECEIVE_BUFFER: Final = 4096
_SIP: Final = 1024
#: A body that would take weeks at this speed.
_BODY_BYTES: Final = 1_000_000

_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ").match


def _opening(attack: Attack) -> bytes:
    """What each connection sends immediately."""
    method = "POST" if attack.kind == "slow-body" else "GET"
    head = f"{method} {attack.path} HTTP/1.1\r\nHost: gateway.test\r\n"
    if attack.key:
        head += f"Authorization: Bearer {attack.key}\r\n"
    if attack.kind == "slow-header":
        return f"{head}X-Slow: ".encode()
    if attack.kind == "slow-body":
        return f"{head}Content-Length: {_BODY_BYTES}\r\n\r\n".encode()
    return f"{head}\r\n".encode()


class _SlowClient(asyncio.BufferedProtocol):
    """A slow client. A slow reader has a small buffer, so that it never reads more at a time."""

    transport: asyncio.Transport

    def __init__(self, attack: Attack, outcome: Outcome) -> None:
        self._attack = attack
        self._outcome = outcome
        self._reads = attack.kind != "slow-read"
        self._buffer = bytearray(4096 if self._reads else _SIP)
        self._has_status = False
        self._since = time.monotonic()
        self._has_left = False
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._outcome.opened += 1
        self.transport.write(_opening(self._attack))
        if not self._reads:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        status = None if self._has_status else _STATUS(self._buffer[:nbytes])
        if status is not None:
            self._has_status = True
            self._outcome.statuses[int(status[1])] += 1
        if not self._reads:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        if not self._has_left:
            self._outcome.ended += 1
            self._outcome.lives_s.append(time.monotonic() - self._since)

    def turn(self) -> None:
        """Send the next byte, or read the next few."""
        if self.transport.is_closing():
            return
        if self._reads:
            self.transport.write(b"a")
        else:
            self.transport.resume_reading()

    def leave(self) -> None:
        """Close the connection: the attack is over."""
        self._has_left = True
        self.transport.abort()


async def run(attack: Attack) -> Outcome:
    """Open all connections, keep them open with minimal traffic, and return the result."""
    outcome = Outcome()
    clients: list[_SlowClient] = []
    gate = asyncio.Semaphore(_OPENERS)

    async def hold_one() -> None:
        client = _SlowClient(attack, outcome)
        try:
            async with gate:
                await _connect(client, attack)
        except OSError:
            outcome.refused += 1
            return
        clients.append(client)
        await client.ended.wait()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(attack.seconds), asyncio.TaskGroup() as tasks:
            ticking = tasks.create_task(_keep_slow(clients, attack.every_s))
            await asyncio.gather(*(hold_one() for _ in range(attack.connections)))
            ticking.cancel()
    for client in clients:
        if not client.ended.is_set():
            outcome.held += 1
            client.leave()
    return outcome


async def _connect(client: _SlowClient, attack: Attack) -> None:
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    try:
        connection.setblocking(False)
        if attack.kind == "slow-read":
            # Before connecting, since it determines the offered TCP window.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        await loop.sock_connect(connection, ("127.0.0.1", attack.port))
        await loop.create_connection(lambda: client, sock=connection)
    except BaseException:
        connection.close()
        raise


async def _keep_slow(clients: list[_SlowClient], every_s: float) -> None:
    """Call each client's `turn` once per period; in ten groups, not all in one burst."""
    group = 0
    while True:
        for client in clients[group::10]:
            client.turn()
        group = (group + 1) % 10
        await asyncio.sleep(every_s / 10)
