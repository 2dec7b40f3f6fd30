"""How long a worker reads one body of a message, in a step in which it does nothing else.

    python -m tests.bench.mcp_bodies                  bodies of 1 MiB, the default `max_body`
    python -m tests.bench.mcp_bodies --bytes 4194304

For each kind: the CPU milliseconds of the longest step of the event loop, as a range over rounds,
and those of the whole request against a plain one with the same body.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gateway.domain.json_text import MOST_LEVELS
from gateway.domain.mcp.members import MOST_ELEMENTS, MOST_KEYS
from gateway.domain.mcp.messages import MOST_ARRAY_BYTES, Body, read_body
from gateway.domain.mcp.settings import Mcp
from tests.bench.mcp_cases import ANSWER, ROUTES, message, post, prepare
from tests.bench.rig import PLANS, Rig, rig
from tests.kit.proxy import policy_of

ROUNDS: Final = 7
#: What surrounds the arguments of a call.
_MARGIN: Final = 512
#: Below the message, its params and the array.
_DEPTH: Final = MOST_LEVELS - 3
#: Bodies of any size are read.
_ROUTES: Final = ROUTES.replace("tools:", "max_body: 16MiB\n      tools:")


def with_arguments(arguments: bytes) -> bytes:
    """A call with these arguments, as JSON."""
    empty = message("tools/call", name="search_code", arguments={})
    return empty.replace(b"{}", arguments, 1)


def repeated(unit: bytes, size: int) -> bytes:
    """An array of this element."""
    return b"[%b]" % b",".join([unit] * (size // (len(unit) + 1)))


def mixed(units: Sequence[bytes], size: int) -> bytes:
    """An array of these elements at random: a processor cannot predict them."""
    dice = random.Random(1)
    mean = sum(map(len, units)) / len(units) + 1
    return b"[%b]" % b",".join(dice.choices(units, k=int(size / mean * 0.99)))


def tree(size: int) -> bytes:
    """Arrays in arrays, of all depths."""
    dice = random.Random(1)

    def node(depth: int) -> bytes:
        if not depth:
            return dice.choice((b"[]", b"{}", b"1", b'""'))
        return b"[%b]" % b",".join([node(depth - 1) for _ in range(dice.randint(0, 3))])

    nodes, left = [], size
    while left > 0:
        nodes.append(node(dice.randint(0, 8)))
        left -= len(nodes[-1]) + 1
    return b"[%b]" % b",".join(nodes[:-1])


def text(unit: str, size: int) -> bytes:
    """A text of this unit, which is JSON as it is."""
    encoded = unit.encode()
    return b'"%b"' % (encoded * (size // len(encoded)))


def batch(size: int) -> bytes:
    """As many messages as an array may have, each with as many keys as it may have."""
    keys = b",".join([b'"\xc3\xa9%d":1' % at for at in range(MOST_KEYS - 4)])
    parts = with_arguments(tree(size // MOST_ELEMENTS - 3 * len(keys) - _MARGIN))
    one = parts.replace(b'"name":', b'%b,"_meta":{%b},"name":' % (keys, keys))
    return b"[%b]" % b",".join([b"{%b,%b" % (keys, one[1:])] * MOST_ELEMENTS)


def kinds(size: int) -> Iterator[tuple[str, bytes]]:
    """Bodies of at most this size, which take long, by name."""
    room = size - _MARGIN
    arguments: dict[str, Callable[[], bytes]] = {
        "one text": lambda: text("x", room),
        "escapes of one character": lambda: text("\\n", room),
        "escapes of a code": lambda: text("\\u0041", room),
        "not ASCII": lambda: text("\u6f22", room),
        "one number": lambda: b"1" * room,
        "numbers": lambda: repeated(b"123456.5e10", room),
        "digits": lambda: repeated(b"1", room),
        "empty arrays": lambda: repeated(b"[]", room),
        "arrays and objects": lambda: mixed((b"[]", b"{}"), room),
        "all kinds": lambda: mixed((b"[]", b"{}", b"1", b'""', b"[[]]", b"-1.0e1", b"null"), room),
        "deep": lambda: repeated(b"[" * _DEPTH + b"]" * _DEPTH, room),
        "all depths": lambda: tree(room),
        "small keys": lambda: b"{%b}" % b",".join([b'"a":1'] * (room // 6)),
        "white space": lambda: b"[%b]" % (b" " * room),
    }
    for name, build in arguments.items():
        yield name, with_arguments(build())
    # Read twice as an argument, and once more in `_meta`, which is short.
    meta = b'"_meta":{"a":%b},"name"' % tree(60_000)
    yield "all depths, also in _meta", with_arguments(tree(room - 62_000)).replace(b'"name"', meta)
    yield "a long name", with_arguments(b"1").replace(b"search_code", b"x" * room)
    yield "a long key", with_arguments(b"1").replace(b"arguments", b"\\u0130" * (room // 6))
    yield "a batch", batch(min(size, MOST_ARRAY_BYTES))
    yield "a batch of many keys", batch(0)


class Timed:
    """Sends a body, and notes the longest step in CPU milliseconds and their sum."""

    def __init__(self, parts: Rig, path: str, body: bytes) -> None:
        self._rig = parts
        key = prepare(parts)
        parts.use(policy_of(plans=PLANS, routes=_ROUTES))
        self._sent = post(key, path, body).replace(b"MCP-Protocol-Version: 2025-11-25\r\n", b"")
        self.steps: list[float] = []

    def once(self) -> tuple[float, float]:
        self.steps = []
        client, _ = self._rig.connect()
        left = memoryview(self._sent)
        while left:
            room = client.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self._time(lambda size=size: client.buffer_updated(size))  # type: ignore[misc]
        while self._time(self._rig.loop.run):
            pass
        self._time(lambda: self._rig.answer(ANSWER))
        return max(self.steps), sum(self.steps)

    def _time(self, step: Callable[[], object]) -> object:
        begin = time.process_time_ns()
        result = step()
        self.steps.append((time.process_time_ns() - begin) / 1e6)
        return result


def measure(body: bytes, rounds: int = ROUNDS) -> tuple[list[float], float, float]:
    """The longest steps by round; the shortest whole request, and that of a plain one."""
    with rig() as parts:
        plain = [Timed(parts, "/plain", body).once()[1] for _ in range(rounds)]
    with rig() as parts:
        read = [Timed(parts, "/mcp", body).once() for _ in range(rounds)]
    return sorted(step for step, _ in read), min(whole for _, whole in read), min(plain)


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.mcp_bodies")
    parser.add_argument("--bytes", type=int, default=Mcp().body_bytes, metavar="N")
    options = parser.parse_args()
    print(f"{'':28}{'bytes':>10}{'longest step, ms':>20}{'times a plain one':>20}")
    for name, body in kinds(options.bytes):
        steps, whole, plain = measure(body)
        read = "" if isinstance(read_body(body, ""), Body) else "  refused"
        longest = f"{steps[0]:.1f} to {steps[-1]:.1f}"
        print(f"{name:28}{len(body):10,}{longest:>20}{whole / plain:20.1f}{read}")


if __name__ == "__main__":
    main()
