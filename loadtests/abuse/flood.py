"""Clients that pipeline as many requests as are accepted, without a key.

    pipeline         they read their answers
    pipeline-unread  they never read

Each sends a few requests to /health and then requests that need a key, over one connection, until
the attack ends or the gateway closes it. After some dozens of them the address exceeds its limit on
failed authentications, and is refused immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter

from loadtests.abuse.attack import Attack, Outcome

#: Requests per write.
_BLOCK = 200


def _requests(path: str) -> tuple[bytes, bytes]:
    """The requests that are sent first, and those that are then repeated."""
    health = b"GET /health HTTP/1.1\r\nHost: gateway.test\r\n\r\n"
    keyless = f"GET {path} HTTP/1.1\r\nHost: gateway.test\r\n\r\n".encode()
    return health * 20, keyless * _BLOCK


async def run(attack: Attack) -> Outcome:
    """Attack over all connections at the same time."""
    outcome = Outcome()
    await asyncio.gather(*(_one(attack, outcome) for _ in range(attack.connections)))
    return outcome


async def _one(attack: Attack, outcome: Outcome) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        if attack.kind == "pipeline-unread":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await loop.sock_connect(connection, ("127.0.0.1", attack.port))
        except OSError:
            outcome.refused += 1
            return
        outcome.opened += 1
        began_s = loop.time()
        try:
            async with asyncio.timeout(attack.seconds), asyncio.TaskGroup() as group:
                group.create_task(_send(connection, attack.path))
                if attack.kind == "pipeline":
                    group.create_task(_read(connection, outcome.statuses))
        except TimeoutError:
            outcome.held += 1
        except ExceptionGroup:  # closed or reset by the gateway
            outcome.ended += 1
            outcome.lives_s.append(loop.time() - began_s)


async def _send(connection: socket.socket, path: str) -> None:
    loop = asyncio.get_running_loop()
    first, block = _requests(path)
    await loop.sock_sendall(connection, first)
    while True:
        await loop.sock_sendall(connection, block)


async def _read(connection: socket.socket, statuses: Counter[int]) -> None:
    """Read and count answers. One that is split between two reads may be missed."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(connection, 1 << 18):
        for line in data.split(b"HTTP/1.1 ")[1:]:
            with contextlib.suppress(ValueError):
                statuses[int(line[:3])] += 1
    raise ConnectionResetError("the gateway closed the connection")
