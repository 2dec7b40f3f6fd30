"""The active health check: requests by the gateway, at an interval."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import Final

from gateway.domain.upstreams import HealthCheck
from gateway.http1.response import MOST_HEAD_BYTES, parse_response_head

#: Opens a connection for a protocol, within a number of seconds. Raises OSError.
Dial = Callable[
    [Callable[[], asyncio.StreamReaderProtocol], float],
    Awaitable[tuple[asyncio.Transport, asyncio.StreamReaderProtocol]],
]

#: Heads before the final one.
_MOST_INTERIM: Final = 16


async def watch_health(
    dial: Dial, host: str, rule: HealthCheck, report: Callable[[str | None], None]
) -> None:
    """Check at once and then at each interval, until cancelled. report(None): it is healthy."""
    # The first wait is shorter, as the checks of all servers begin together.
    wait_s = rule.interval_s * random()  # noqa: S311
    while True:
        report(await check_once(dial, host, rule))
        await asyncio.sleep(wait_s)
        wait_s = rule.interval_s


async def check_once(dial: Dial, host: str, rule: HealthCheck) -> str | None:
    """Send a request on a new connection; return what is wrong with the server, or None."""
    reader = asyncio.StreamReader(limit=MOST_HEAD_BYTES)
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(rule.timeout_s):
            transport, _ = await dial(lambda: asyncio.StreamReaderProtocol(reader), rule.timeout_s)
            transport.write(
                b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
                % (rule.path.encode("utf-8"), host.encode("ascii"))
            )
            return await _read_status(reader)
    except asyncio.IncompleteReadError:
        return "it closed before it answered"
    except asyncio.LimitOverrunError:
        return f"its head is longer than {MOST_HEAD_BYTES} bytes"
    except OSError as error:
        return str(error) or f"no answer within {rule.timeout_s:g} s"
    finally:
        if transport is not None:
            transport.abort()


async def _read_status(reader: asyncio.StreamReader) -> str | None:
    for _ in range(_MOST_INTERIM):
        head = parse_response_head((await reader.readuntil(b"\r\n\r\n"))[:-2])
        if isinstance(head, str):
            return head
        if head.status >= 200:
            return None if head.status < 400 else f"it answered {head.status}"
    return "too many interim responses"
