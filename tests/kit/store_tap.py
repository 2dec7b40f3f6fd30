"""A TCP proxy in front of Redis that records every decision that passes through it.

It reads the input and output of `gateway/stores/limits/lua/decide.lua`, so a test knows each
decision with its time by the store's clock, whichever gateway asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import Any

import hiredis

from gateway.stores.limits.script import build_command
from tests.kit.listening import Listening

_CHECK = Struct("<dB")
_LEASE = Struct("<d")
_LIMIT = Struct("<BBddddd")
_MOMENT = Struct("<q")
#: The digest of the script that decides.
_DECIDE = build_command([], 0).split(b"\r\n")[4]
_REPLY_HEAD = 16
_ANSWER_HEAD, _ANSWER_LIMIT = 14, 16
_LEASED = 128
_NOT_YET = object()


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision. at_us: by the store's clock; cost: what it counted; 0: nothing."""

    at_us: int
    counters: tuple[str, ...]
    cost: int
    allowed: bool


#: One check: the names of its counters, and its cost.
Asked = tuple[tuple[str, ...], int]


class StoreTap(Listening):
    """Listens on a free port of 127.0.0.1 within its `async with`.

    decisions: in no particular order of connections
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.decisions: list[Decided] = []
        self._target = target

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward: asyncio.StreamWriter | None = None
        try:
            replies, onward = await asyncio.open_connection("127.0.0.1", self._target)
            recorder = _Recorder(self.decisions)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, onward, recorder.commands))
                pumps.create_task(_pump(replies, writer, recorder.replies))
        except* (OSError, EOFError):
            pass  # either end has closed
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()


class _Recorder:
    """One connection: its commands, and which reply belongs to which."""

    def __init__(self, decisions: list[Decided]) -> None:
        self._decisions = decisions
        self._commands = hiredis.Reader(notEnoughData=_NOT_YET)
        self._replies = hiredis.Reader(notEnoughData=_NOT_YET)
        self._waiting: deque[list[Asked]] = deque()

    def commands(self, data: bytes) -> None:
        self._commands.feed(data)
        while (words := self._commands.gets()) is not _NOT_YET:
            self._waiting.append(read_checks(words) if _is_decision(words) else [])

    def replies(self, data: bytes) -> None:
        self._replies.feed(data)
        while (reply := self._replies.gets()) is not _NOT_YET:
            if isinstance(reply, hiredis.PushNotification):
                continue
            asked = self._waiting.popleft()
            if asked and isinstance(reply, bytes):
                self._decisions += read_decisions(reply, asked)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Any) -> None:
    while data := await reader.read(65536):
        record(data)
        writer.write(data)
        await writer.drain()
    raise EOFError


def _is_decision(words: list[bytes]) -> bool:
    """Is it a call of this script? Workers call others too, such as those that write usage."""
    return words[0] == b"EVALSHA" and words[1] == _DECIDE


def read_checks(words: list[bytes]) -> list[Asked]:
    """The checks of a call of the script, given as its words."""
    count = int(words[2])
    names, packed = [name.decode() for name in words[3 : 3 + count]], words[4 + count]
    asked: list[Asked] = []
    at = key = 0
    while at < len(packed):
        cost, limits = _CHECK.unpack_from(packed, at)
        at += _CHECK.size
        if limits >= _LEASED:
            limits -= _LEASED
            at += _LEASE.size
        at += limits * _LIMIT.size
        asked.append((tuple(names[key : key + limits]), max(0, int(cost))))
        key += limits
    return asked


def read_decisions(reply: bytes, asked: list[Asked]) -> list[Decided]:
    """The script's answer to these checks."""
    (now_us,) = _MOMENT.unpack_from(reply)
    at, decided = _REPLY_HEAD, []
    for counters, cost in asked:
        decided.append(Decided(now_us, counters, cost, reply[at] == 1))
        at += _ANSWER_HEAD + _ANSWER_LIMIT * len(counters)
    return decided
