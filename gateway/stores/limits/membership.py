"""Which workers are alive, of all gateways on one store: the ground for sharing limits out.

Each worker has a random id and tells the store about once a second, in one sorted set, until when
it counts as alive by the store's clock. Whoever tells hears all ids, and their order gives every
worker the same ranks. What was heard last holds while the store is away.

More workers than before are believed at once, as a part that is too small does no harm. Fewer are
believed only when it has stayed at that: after an outage or a loss of data the set is empty, and
the first to come back would think itself alone.

Others may write to the set. What is no worker's id counts for nobody, and a set with more members
than there can be workers is begun anew: whoever lives is in it again within a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, Final

from gateway.stores.wire import command

#: Sends one command to the store, and calls back with the reply.
Send = Callable[[bytes, Callable[[Any], None]], None]

#: Lies beside the records of keys, in the same slot of a cluster.
NAME: Final = "gw:{keys}:workers"
TELL_S: Final = 1.0
#: A worker that has not told for so long is taken for dead.
ALIVE_S: Final = 5.0
#: How long the end of a worker waits until the store has heard of it.
FAREWELL_S: Final = 0.5

#: The most workers there can be on one store: all of them are named to each once a second.
MOST_WORKERS: Final = 10_000

_is_id = re.compile(rb"[0-9a-z-]{1,32}").fullmatch

#: KEYS[1]: the set; ARGV: the worker's id, for how long it is alive, in milliseconds, and the most
#: members. No expiry is further ahead than that, whatever the clock has done since.
_TELL: Final = """
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


class Roster:
    """One worker's place among all.

    send:    over a connection to where the set is
    index:   the worker's place in its own gateway, and of how many: what counts until more is known
    own_id:  in place of a random one
    """

    def __init__(
        self, send: Send, *, index: int = 0, workers: int = 1, own_id: str | None = None
    ) -> None:
        self._send = send
        self._id = own_id or token_hex(8)
        self._place = index, workers
        self._fewer_since_s: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def place(self) -> tuple[int, int]:
        """The worker's rank, from 0, and how many there are, as last known."""
        return self._place

    def heard(self, ids: Sequence[str], now_s: float) -> None:
        """These workers are alive, the own one among them. now_s: by a clock that never steps."""
        count = len(ids)
        if count >= self._place[1]:
            self._fewer_since_s = None
        elif self._fewer_since_s is None:
            self._fewer_since_s = now_s
            return
        elif now_s - self._fewer_since_s < ALIVE_S:
            return
        self._place = sorted(ids).index(self._id), count

    def heard_nothing(self) -> None:
        """The store could not say."""
        self._fewer_since_s = None

    def start(self) -> None:
        """Tell now and from now on, until `stop`. Needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._tell()

    async def stop(self) -> None:
        """Leave, so that the others need not wait until this worker counts as dead."""
        if self._timer is not None:
            self._timer.cancel()
        gone = asyncio.Event()
        self._send(command("ZREM", NAME, self._id), lambda _: gone.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await gone.wait()

    def _tell(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(TELL_S, self._tell)
        told = command("EVAL", _TELL, 1, NAME, self._id, int(ALIVE_S * 1000), MOST_WORKERS)
        self._send(told, self._told)

    def _told(self, reply: Any) -> None:
        assert self._loop is not None
        ids = _ids_in(reply)
        if self._id in ids:
            self.heard(ids, self._loop.time())
        else:
            self.heard_nothing()


def _ids_in(reply: Any) -> list[str]:
    """The ids of workers in what the store answered."""
    members = reply if isinstance(reply, list) else []
    return [one.decode() for one in members if isinstance(one, bytes) and _is_id(one)]
