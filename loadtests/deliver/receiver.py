"""Endpoints of customers, as a process: python -m loadtests.deliver.receiver CERTIFICATE KEY.

It prints its port and that of its figures. A path is /MILLISECONDS/ANYTHING, and is answered with
200 after this time; /hang/ANYTHING is never answered, /gone/ANYTHING with 410, and /flap/ANYTHING
with 200 and with 503 in turns of FLAP_S. On the port of the figures, a line with a
number gets them as JSON: the ages of the deliveries after so many.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from typing import Final, cast

import uvloop

_ANSWER: Final = b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nok"
FLAP_S: Final = 20.0


class Figures:
    """ids: of deliveries that arrived

    ages_ms: how old each event was when it arrived first at an endpoint that is always well
    """

    def __init__(self) -> None:
        self.ids: set[tuple[str, str]] = set()
        self.ages_ms: list[float] = []
        self.duplicates = 0
        self.hung = 0

    def note(self, path: str, body: bytes) -> None:
        event = json.loads(body)
        name = (event["id"], path)
        if name in self.ids:
            self.duplicates += 1
            return
        self.ids.add(name)
        if not path.startswith("/flap/"):
            self.ages_ms.append(round((time.time() - event["at"]) * 1000, 1))

    def written(self, first: int) -> bytes:
        """first: how many ages to leave out"""
        figures = {
            "count": len(self.ids),
            "ages_ms": self.ages_ms[first:],
            "duplicates": self.duplicates,
            "hung": self.hung,
        }
        return json.dumps(figures).encode()


class Endpoint(asyncio.Protocol):
    """One connection. Requests have a Content-Length, as couriers send them."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        if len(rest) < size:
            return
        self._received = rest[size:]
        path = head.split(b" ", 2)[1].decode()
        delay = path.split("/")[1]
        if delay == "hang":
            self._figures.hung += 1
            return
        status, after_s = 200, 0.0
        if delay == "gone":
            status = 410
        elif delay == "flap":
            status = 503 if time.time() // FLAP_S % 2 else 200
        else:
            after_s = int(delay) / 1000
        if status == 200:
            self._figures.note(path, rest[:size])
        asyncio.get_running_loop().call_later(after_s, self._answer, status)

    def _answer(self, status: int) -> None:
        if not self._transport.is_closing():
            self._transport.write(_ANSWER % status)


async def _serve(certificate: str, key: str) -> None:
    figures = Figures()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(figures.written(int(await reader.readline())))
        await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    endpoints = await loop.create_server(
        lambda: Endpoint(figures), "127.0.0.1", 0, ssl=tls, backlog=4096
    )
    told = await asyncio.start_server(tell, "127.0.0.1", 0)
    print(endpoints.sockets[0].getsockname()[1], told.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], sys.argv[2]))
