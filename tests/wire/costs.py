"""The cost of each wire case, as a multiple of a plain message of its length.

    python -m tests.wire.costs

CPU time of the gateway in memory, upstream included, the least of several tries; a message costs
hundreds of microseconds here, most of which is the test's loop. So the comparison is of what a
case takes beyond the shortest request. The plain message is a POST with a body that makes it as
long as the case, its upstream's answers included.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.wire.bench import KEYS, MemoryBench
from tests.wire.cases import Case, read_all

TRIES = 7
SHORTEST = b"GET /api/x HTTP/1.1\r\nHost: gateway.test\r\napiKey: {key}\r\n\r\n"


def main() -> None:
    """Print the most expensive case of each attack."""
    worst: dict[str, tuple[float, float, str]] = {}
    texts = {name: text for name, (text, _) in KEYS.items()}
    with tempfile.TemporaryDirectory(prefix="costs-") as folder:
        bench = MemoryBench(Path(folder))
        try:
            least_s = _cost_s(bench, [_filled(SHORTEST, texts)])
            for case in read_all():
                sends = case.filled(texts)
                size = sum(map(len, sends)) + sum(map(len, case.answers))
                spent_s = _cost_s(bench, sends, case)
                plain_s = max(_cost_s(bench, [_plain(size, texts)]), least_s)
                ratio = max(1.0, spent_s / plain_s)
                attack = case.name[:2]
                worst[attack] = max(worst.get(attack, (0.0, 0.0, "")), (ratio, spent_s, case.name))
        finally:
            bench.close()
    for attack, (ratio, spent_s, name) in sorted(worst.items()):
        print(f"{attack}  {ratio:6.1f} times  {spent_s * 1e6:8.0f} us  {name}")


def _filled(text: bytes, keys: dict[bytes, bytes]) -> bytes:
    for mark, key in keys.items():
        text = text.replace(mark, key)
    return text


def _plain(size: int, keys: dict[bytes, bytes]) -> bytes:
    """A plain request of this many bytes."""
    short = _filled(SHORTEST, keys)
    if size <= len(short) + 100:
        return short
    body = size - len(short) - len("Content-Length: \r\n") - len(str(size))
    head = short.replace(b"GET", b"POST")[:-2] + b"Content-Length: %d\r\n\r\n" % body
    return head + bytes(body)


def _cost_s(bench: MemoryBench, sends: Sequence[bytes], case: Case | None = None) -> float:
    tries = []
    for _ in range(TRIES):
        before = time.process_time()
        if case is None:
            bench.run([[one] for one in sends])
        else:
            bench.run([[one] for one in sends], case.answers, case.hangs_up)
        tries.append(time.process_time() - before)
    return min(tries)


if __name__ == "__main__":
    main()
