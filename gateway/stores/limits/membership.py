"""Which workers are alive, of all gateways on one store. Limits are shared among them.

Each worker has a random id. About once a second it writes to one sorted set until when it counts as
alive, by the store's clock. The reply has all ids, and their order gives every worker the same
ranks. The last reply stays valid in an outage.

A larger number of workers is accepted at once, as a share that is too small does no harm. A smaller
one is accepted only after ALIVE_S: after an outage or a loss of data the set is empty, and the
first worker to reconnect would find only itself.

Others may write to the set. Members that are not worker ids are ignored, and a set with more
members than there can be workers is deleted: live workers are in it again within a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, Final

from gateway.stores.names import WORKERS
from gateway.stores.redis.connection import command

#: Sends one command to the store, and calls back with the reply.
Send = Callable[[bytes, Callable[[Any], None]], None]

REPORT_S: Final = 1.0
#: A worker that has not reported for this long counts as dead.
ALIVE_S: Final = 5.0
#: How long a worker that stops waits for the store's confirmation.
STOP_TIMEOUT_S: Final = 0.5

#: The most workers on one store: each of them receives all ids once a second.
MOST_WORKERS: Final = 10_000

_is_id = re.compile(rb"[0-9a-z-]{1,32}").fullmatch

#: KEYS[1]: the set; ARGV: the worker's id, how long it counts as alive, in milliseconds, and the
#: most members. An expiry further ahead than that is removed: the clock has stepped back.
_REPORT: Final = """
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' or redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[3]) then
  redis.call('UNLINK', KEYS[1])
end
local time = redis.call('TIME')
local now, alive = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + alive), '+inf')
redis.call('ZADD', KEYS[1], string.format('%.0f', now + alive), ARGV[1])
redis.call('PEXPIRE', KEYS[1], alive)
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""


class Membership:
    """One worker's rank among all.

    send:    sends a command to the set's server
    index, workers: the position until the store has answered: the worker's rank in its own gateway,
             and that gateway's number of workers
    own_id:  replaces the random id
    """

    def __init__(
        self, send: Send, *, index: int = 0, workers: int = 1, own_id: str | None = None
    ) -> None:
        self._send = send
        self._id = own_id or token_hex(8)
        self._position = index, workers
        self._fewer_since_s: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def position(self) -> tuple[int, int]:
        """The worker's rank, from 0, and the number of workers, as last known."""
        return self._position

    def update(self, ids: Sequence[str], now_s: float) -> None:
        """Update the position by the ids of all live workers. now_s: by a clock that never steps"""
        count = len(ids)
        if count >= self._position[1]:
            self._fewer_since_s = None
        elif self._fewer_since_s is None:
            self._fewer_since_s = now_s
            return
        elif now_s - self._fewer_since_s < ALIVE_S:
            return
        self._position = sorted(ids).index(self._id), count

    def update_failed(self) -> None:
        """The store did not answer."""
        self._fewer_since_s = None

    def start(self) -> None:
        """Report now and once a second, until `stop`. Needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._report()

    async def stop(self) -> None:
        """Leave the set, so that the other workers notice the end at once."""
        if self._timer is not None:
            self._timer.cancel()
        left = asyncio.Event()
        self._send(command("ZREM", WORKERS, self._id), lambda _: left.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await left.wait()

    def _report(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(REPORT_S, self._report)
        encoded = command("EVAL", _REPORT, 1, WORKERS, self._id, int(ALIVE_S * 1000), MOST_WORKERS)
        self._send(encoded, self._reported)

    def _reported(self, reply: Any) -> None:
        assert self._loop is not None
        ids = read_ids(reply)
        if self._id in ids:
            self.update(ids, self._loop.time())
        else:
            self.update_failed()


def read_ids(reply: Any) -> list[str]:
    """The worker ids in a reply."""
    members = reply if isinstance(reply, list) else []
    return [one.decode() for one in members if isinstance(one, bytes) and _is_id(one)]
