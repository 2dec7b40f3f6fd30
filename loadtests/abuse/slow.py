"""Clients that are slow on purpose: each holds a connection for as long as it is let.

    slow-header  a request's head, a byte at a time, never whole
    slow-body    a whole head that promises a body, then a byte of it at a time
    slow-read    a whole request for a long answer, of which a sip is read at a time

The gateway under attack is on 127.0.0.1. An attack ends when every connection has been ended by the
gateway, and otherwise after its own time.
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
#: How much a slow reader's kernel takes in for it, and how much it reads of that in one turn.
_RECEIVE_BUFFER: Final = 4096
_SIP: Final = 1024
#: A body that would take its client weeks.
_BODY_BYTES: Final = 1_000_000

_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ").match


def _opening(attack: Attack) -> bytes:
    """What each connection sends at once."""
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
    """One of them. A slow reader's buffer is a sip, so that it never reads more than that."""

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
        """Send the next byte, or read the next sip."""
        if self.transport.is_closing():
            return
        if self._reads:
            self.transport.write(b"a")
        else:
            self.transport.resume_reading()

    def leave(self) -> None:
        """Hang up: the attack's time is over."""
        self._has_left = True
        self.transport.abort()


async def run(attack: Attack) -> Outcome:
    """Open all connections, keep them busy with next to nothing, and tell what came of it."""
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
            # Before connecting, since it settles the window that is offered.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        await loop.sock_connect(connection, ("127.0.0.1", attack.port))
        await loop.create_connection(lambda: client, sock=connection)
    except BaseException:
        connection.close()
        raise


async def _keep_slow(clients: list[_SlowClient], every_s: float) -> None:
    """Give each client a turn in every period; in ten groups, not all in one burst."""
    group = 0
    while True:
        for client in clients[group::10]:
            client.turn()
        group = (group + 1) % 10
        await asyncio.sleep(every_s / 10)
