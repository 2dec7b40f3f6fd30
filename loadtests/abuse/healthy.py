"""A normal client, which measures how long it waits for its answers.

    python -m loadtests.abuse.healthy --port 8080 --path /v1/connectors --key KEY --seconds 10

One keep-alive connection, one request after the other. It prints one line of JSON: how many were
answered, by status, and the median, 99th percentile and longest wait in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Healthy:
    """statuses: of the answers, 0 for a broken connection; waits_s: for each complete answer"""

    statuses: Counter[int] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        """The wait that this percentage of the requests does not exceed."""
        waits = sorted(self.waits_s)
        place = min(len(waits) - 1, int(len(waits) * percent / 100))
        return round(waits[place] * 1000, 2) if waits else 0.0

    def figures(self) -> dict[str, object]:
        """The values that the tool prints."""
        return {
            "requests": self.statuses.total(),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "p50_ms": self.percentile_ms(50),
            "p99_ms": self.percentile_ms(99),
            "longest_ms": self.percentile_ms(100),
        }


async def keep_asking(
    port: int, path: str, key: str, is_enough: Callable[[Healthy], bool]
) -> Healthy:
    """Send requests until `is_enough`. A broken connection is reopened."""
    healthy = Healthy()
    request = f"GET {path} HTTP/1.1\r\nHost: gateway.test\r\n"
    if key:
        request += f"Authorization: Bearer {key}\r\n"
    sent = f"{request}\r\n".encode()
    while not is_enough(healthy):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            healthy.statuses[0] += 1
            await asyncio.sleep(0.05)
            continue
        try:
            while not is_enough(healthy):
                since = time.perf_counter()
                writer.write(sent)
                status = await _read_answer(reader)
                healthy.waits_s.append(time.perf_counter() - since)
                healthy.statuses[status] += 1
        except (OSError, asyncio.IncompleteReadError):
            healthy.statuses[0] += 1
        finally:
            writer.close()
    return healthy


async def _read_answer(reader: asyncio.StreamReader) -> int:
    """The status of an answer with a Content-Length, read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    _, found, after = lower.partition(b"content-length:")
    if found:
        await reader.readexactly(int(after.split(b"\r\n", 1)[0]))
    return int(head.split(b" ", 2)[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.abuse.healthy", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--port", type=int, required=True, help="the gateway's, on 127.0.0.1")
    parser.add_argument("--path", default="/health")
    parser.add_argument("--key", default="", help="an API key to show")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    end = time.monotonic() + min(given.seconds, 600.0)
    healthy = asyncio.run(
        keep_asking(given.port, given.path, given.key, lambda _: time.monotonic() >= end)
    )
    print(json.dumps(healthy.figures()))


if __name__ == "__main__":
    main()
