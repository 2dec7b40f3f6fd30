"""A worker's directory of keys: a cache that Redis invalidates.

A key is read once and cached. Redis pushes the name of every changed record (client tracking in
broadcast mode, RESP3) on the same connection that the look-ups use, and the record is invalidated.
One connection keeps all of it in order: the reply to a read before a change precedes the push of
that change. `lookups` describes the look-ups.

While the connection is lost, changes are not noticed. Cached keys stay valid for `keep_keys_s`,
others cannot be looked up. After reconnecting all cached keys are stale: each is read again before
it is used; if the store is too slow for that, the stale one is used until that time is over. A
heartbeat that is not answered in time detects a dead connection. Each heartbeat also reads the
store's time, by which keys expire (`clock`): as replies arrive in order, it is known before the
first key. And each reads whether the store still has the same data (`data_watch`), as some changes
are not pushed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

import hiredis

from gateway.domain.counters import PREFIX
from gateway.domain.identity import Absent, Identity
from gateway.domain.policy import StoreSettings
from gateway.domain.ports import StoreDown
from gateway.stores.keys.cache import IdentityCache
from gateway.stores.keys.data_watch import DataWatch
from gateway.stores.keys.lookups import Done, LookUps
from gateway.stores.names import ACCOUNT_PREFIX, KEY_PREFIX, NO_NAME, RESET_PREFIX, USED, subject_of
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clock import TIME, StoreClock
from gateway.stores.redis.connection import StoreConnection, code_of, command

#: Changes nothing, as there is nothing under this name. But only a master executes it, or refuses
#: it by `READS_ONLY`, and in a cluster only the owner of the keys' slot: other nodes may have data
#: that is out of date.
HEARTBEAT: Final = command("DEL", NO_NAME)
_TRACK: Final = command(
    *("CLIENT", "TRACKING", "ON", "BCAST"),
    *("PREFIX", KEY_PREFIX, "PREFIX", ACCOUNT_PREFIX, "PREFIX", RESET_PREFIX),
)
#: Codes of errors by which a master refuses whatever writes, the heartbeat included: it could not
#: save to its disk, or too few replicas are connected. It answers look-ups, and pushes changes.
#: Redis refuses PING as well by the first one.
READS_ONLY: Final = ("MISCONF", "NOREPLICAS")
HEARTBEAT_S: Final = 0.25
DEAD_S: Final = 0.5
#: How often last use is written, in heartbeats; of how many keys at most (and in one command).
_BEATS_A_FLUSH: Final = 4
_MOST_USED: Final = 10_000
#: The last use of one key is written once in this many heartbeats, which is once a minute.
_QUIET_BEATS: Final = 240
_USED_BATCH: Final = 500


class Directory:
    """domain.ports.KeyDirectory over Redis. It has a connection between `start` and `stop`.

    settings:    read at each use: the timeout of a look-up, and how long cached keys stay valid
                 after the connection was lost
    clock:       set by the heartbeat
    heartbeat_s: the interval of checks of the connection
    dead_s:      the timeout of a reply, after which the connection is closed. So a change takes
                 effect within heartbeat_s + dead_s and the time to reconnect, at the latest
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        settings: Callable[[], StoreSettings] = StoreSettings,
        heartbeat_s: float = HEARTBEAT_S,
        dead_s: float = DEAD_S,
        identities: IdentityCache | None = None,
        clock: StoreClock | None = None,
        link: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        self._link = link(
            address,
            timeout_s=dead_s,
            on_push=self._on_push,
            setup=(_TRACK, HEARTBEAT),
            accepted=READS_ONLY,
        )
        #: Listeners, as in StoreConnection.
        self.on_up, self.on_down = self._link.on_up, self._link.on_down
        self.on_failed = self._link.on_failed
        self.on_up.append(self._connected)
        self.on_down.append(self._disconnected)
        #: Listeners, called when the store was emptied.
        self.on_emptied: list[Callable[[], None]] = []
        #: Listeners, called with the name of a counter that was reset.
        self.on_reset: list[Callable[[str], None]] = []
        #: What the store has: other data than before, or keys no more.
        self.data = DataWatch(self._link.send, self._clear, address.label)
        self._settings = settings
        self._heartbeat_s = heartbeat_s
        self.clock = StoreClock() if clock is None else clock
        self._identities = IdentityCache(time.monotonic) if identities is None else identities
        self._look_ups = LookUps(
            self._link.send,
            self._identities,
            timeout_s=lambda: settings().timeout_s,
            failed=self._check_reply,
        )
        self._used: list[str] = []
        self._beats = 0
        self._good_until = 0.0
        self._heartbeat: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_up(self) -> bool:
        """Can keys be looked up, and is the worker notified of changes?"""
        return self._link.is_up

    def start(self) -> None:
        """Connect, and reconnect until `stop`. Needs a running loop."""
        self._link.start()

    async def wait_up(self) -> None:
        """Return once connected."""
        await self._link.wait_up()

    def send(self, encoded: bytes, reply_came: Callable[[object], None]) -> None:
        """Send a command that uses other names in the slot of the keys."""
        self._link.send(encoded, reply_came)

    async def ask(self, *arguments: bytes | str | int) -> object:
        """The same, awaited. Raises StoreDown, also where the reply is an error."""
        return await self._link.ask(*arguments)

    def reconnect(self, reason: str) -> None:
        """Reconnect: the store is another server now."""
        self._link.reconnect(reason)

    async def stop(self) -> None:
        """Disconnect, and do not reconnect; harmless when repeated."""
        try:
            if self._link.is_up:
                self._note_use()
                # Replies arrive in order: after this one, last use has been written.
                with suppress(StoreDown):
                    await self._link.ask("PING")
        finally:
            await self._link.stop()
            self._cancel_timers()
            self._look_ups.close()

    # -- domain.ports.KeyDirectory -----------------------------------------------------------------

    def known(self, key_id: str) -> Identity | Absent | None:
        """The cached identity, or why there is none; None: look it up."""
        return self._identities.find(key_id)

    def look_up(self, key_id: str, done: Done) -> None:
        """Ask the store; `done` is called once. Concurrent look-ups of one id are one command."""
        if (found := self._identities.find(key_id)) is not None:
            done(found)
        else:
            self._look_ups.ask(key_id, done)

    def touch(self, identity: Identity) -> None:
        """The key was used now; that is written to the store within a second or so, or never.

        At most once a minute for each key.
        """
        if self._beats >= identity.quiet_until and len(self._used) < _MOST_USED:
            identity.quiet_until = self._beats + _QUIET_BEATS
            self._used.append(identity.record.id)

    # -- changes -----------------------------------------------------------------------------------

    def _on_push(self, message: Sequence[object]) -> None:
        """Redis pushes [b"invalidate", names of changed records]; None for names: all of them."""
        match message:
            case [b"invalidate", None]:
                self._clear()
            case [b"invalidate", [*names]] if all(isinstance(name, bytes) for name in names):
                for name in cast("list[bytes]", names):
                    self._changed(name)
            case [b"invalidate", *_]:
                # It is not known what has changed: after reconnecting all keys are read again.
                self._link.reconnect("the store sent an invalidation that cannot be read")

    def _clear(self) -> None:
        self._identities.clear()
        self._look_ups.all_changed()
        for listener in self.on_emptied:
            listener()

    def _changed(self, name: bytes) -> None:
        if (key_id := subject_of(name, KEY_PREFIX)) is not None:
            self._identities.invalidate_key(key_id)
            self._look_ups.key_changed(key_id)
        elif (account := subject_of(name, ACCOUNT_PREFIX)) is not None:
            self._identities.invalidate_account(account)
            self._look_ups.account_changed(account)
        elif (count := subject_of(name, RESET_PREFIX)) is not None and count.startswith(PREFIX):
            for listener in self.on_reset:
                listener(count)

    # -- the connection ----------------------------------------------------------------------------

    def _connected(self) -> None:
        """Changes are pushed from now on; earlier ones may have been missed."""
        self._identities.mark_stale(self._good_until)
        self._look_ups.all_changed()
        self._beat()

    def _disconnected(self, _: StoreDown) -> None:
        self._cancel_timers()
        keep_s = self._settings().keep_keys_s
        self._good_until = time.monotonic() + keep_s
        self._expiry = asyncio.get_running_loop().call_later(keep_s, self._expire)

    def _expire(self) -> None:
        """Drop the keys that were cached before the outage: their time is over."""
        if self._link.is_up:
            self._identities.evict_stale()
        else:
            self._identities.clear()

    def _check_reply(self, reply: object) -> None:
        """Reconnect where the reply is an error, or has a type that the command never returns."""
        if isinstance(reply, hiredis.ReplyError):
            self._link.reconnect(f"the store cannot be read: {reply}")
        elif not isinstance(reply, StoreDown):
            self._link.reconnect(f"the store cannot be read: it sent {type(reply).__name__}")

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(self._heartbeat_s, self._beat)
        self._link.send(HEARTBEAT, self._beat_came)
        self._link.send(TIME, partial(self._time_came, self.clock.steady_us()))
        self.data.beat()
        self._beats += 1
        if self._beats % _BEATS_A_FLUSH == 0:
            self._note_use()

    def _beat_came(self, reply: object) -> None:
        is_refused = isinstance(reply, hiredis.ReplyError) and code_of(reply) in READS_ONLY
        if not is_refused and not isinstance(reply, int):
            self._check_reply(reply)

    def _time_came(self, sent_us: int, reply: object) -> None:
        if not self.clock.update(sent_us, reply):
            self._check_reply(reply)

    def _note_use(self) -> None:
        used, self._used = self._used, []
        now = str(self.clock.now_us())
        for start in range(0, len(used), _USED_BATCH):
            pairs = [
                argument
                for key_id in used[start : start + _USED_BATCH]
                for argument in (key_id, now)
            ]
            self._link.send(command("HSET", USED, *pairs), _ignore)

    def _cancel_timers(self) -> None:
        for timer in (self._heartbeat, self._expiry):
            if timer is not None:
                timer.cancel()
        self._heartbeat = self._expiry = None


def _ignore(_: object) -> None: ...
