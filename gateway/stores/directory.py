"""What a worker knows of keys: a memory that Redis keeps true.

A key is read once and remembered. Redis is asked (client tracking, broadcast mode, RESP3) to
name every record that anybody changes, on the very connection that the look-ups use, and what it
names is forgotten. One connection puts all in order: whatever was read before a change has its
reply before the word of the change. What is left is a look-up of two steps, key and account: a
change between them makes it start again.

While the connection is lost, nobody hears of changes. Known keys stay good for `keep_s`, unknown
ones cannot be looked up. With the next connection all are forgotten before any is read. That a
connection is dead shows by a PING that is not answered in time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.ports import Absent, Identity, StoreDown
from gateway.stores.connect import StoreAddress
from gateway.stores.identities import Identities
from gateway.stores.records import (
    ACCOUNT_PREFIX,
    KEY_PREFIX,
    USED,
    CorruptRecord,
    account_name,
    key_name,
    read_account,
    read_record,
    subject_of,
)
from gateway.stores.wire import StoreLink, command

_log = logging.getLogger(__name__)

Done = Callable[[Identity | Absent], None]

_PING: Final = command("PING")
_TRACK: Final = command(
    *("CLIENT", "TRACKING", "ON", "BCAST"),
    *("PREFIX", KEY_PREFIX, "PREFIX", ACCOUNT_PREFIX),
)
HEARTBEAT_S: Final = 0.25
DEAD_S: Final = 0.5
#: How long a worker goes by what it remembers while nobody tells it of changes.
KEEP_S: Final = 300.0
#: Last use is noted every so many heartbeats, of so many keys at most, so many in a command.
_BEATS_A_FLUSH: Final = 4
_MOST_USED: Final = 10_000
_USED_BATCH: Final = 500


@dataclass(slots=True, eq=False)
class _LookUp:
    """One trip to the store, and everybody who waits for it.

    stale: what was read so far has been changed since
    """

    key_id: str
    waiting: list[Done] = field(default_factory=list)
    record: KeyRecord | None = None
    stale: bool = False


class Directory:
    """domain.ports.KeyDirectory over a Redis. Between `start` and `stop` it keeps a connection.

    keep_s:      how long known keys stay good while the connection is lost
    heartbeat_s: how often the connection is tried
    dead_s:      an answer that takes longer means that the connection is dead; a change is heard
                 of within heartbeat_s + dead_s and a new connection, at the worst
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        keep_s: float = KEEP_S,
        heartbeat_s: float = HEARTBEAT_S,
        dead_s: float = DEAD_S,
        identities: Identities | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        link: Callable[..., StoreLink] = StoreLink,
    ) -> None:
        self._link = link(address, timeout_s=dead_s, on_push=self._pushed, setup=(_TRACK,))
        self._link.on_up.append(self._went_up)
        self._link.on_down.append(self._went_down)
        self._keep_s = keep_s
        self._heartbeat_s = heartbeat_s
        self._now_us = now_us
        self._identities = identities or Identities(time.monotonic)
        self._look_ups: dict[str, _LookUp] = {}
        self._used: set[str] = set()
        self._beats = 0
        self._heartbeat: asyncio.TimerHandle | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    @property
    def is_up(self) -> bool:
        """Can keys be looked up, and are changes heard of?"""
        return self._link.is_up

    def start(self) -> None:
        """Begin to connect, and keep at it until `stop`. Needs a running loop."""
        self._link.start()

    async def wait_up(self) -> None:
        """Return once connected."""
        await self._link.wait_up()

    async def stop(self) -> None:
        """Disconnect for good; harmless when repeated."""
        try:
            if self._link.is_up:
                self._note_use()
                # Answered after all before it: what was noted has arrived.
                with suppress(StoreDown):
                    await self._link.ask("PING")
        finally:
            await self._link.stop()
            self._cancel_timers()

    # -- domain.ports.KeyDirectory -----------------------------------------------------------------

    def known(self, key_id: str) -> Identity | Absent | None:
        """What is remembered: an identity, Absent.UNKNOWN, or None: look it up."""
        return self._identities.find(key_id)

    def look_up(self, key_id: str, done: Done) -> None:
        """Ask the store; `done` is called once. Look-ups of one id at one time are one trip."""
        if (found := self._identities.find(key_id)) is not None:
            done(found)
        elif (look_up := self._look_ups.get(key_id)) is not None:
            look_up.waiting.append(done)
        elif not self._link.is_up:
            done(Absent.UNAVAILABLE)
        else:
            look_up = self._look_ups[key_id] = _LookUp(key_id, [done])
            self._ask(look_up)

    def touch(self, key_id: str) -> None:
        """The key was used just now; the store hears of it within a second or so, or never."""
        if len(self._used) < _MOST_USED:
            self._used.add(key_id)

    # -- looking up --------------------------------------------------------------------------------

    def _ask(self, look_up: _LookUp) -> None:
        look_up.stale = False
        look_up.record = None
        asked = command("GET", key_name(look_up.key_id))
        self._link.send(asked, partial(self._record_came, look_up))

    def _record_came(self, look_up: _LookUp, reply: object) -> None:
        if not self._is_usable(look_up, reply):
            return
        if reply is None:
            self._identities.keep_unknown(look_up.key_id)
            self._finish(look_up, Absent.UNKNOWN)
            return
        assert isinstance(reply, bytes)
        try:
            look_up.record = read_record(look_up.key_id, reply)
        except CorruptRecord as error:
            self._give_up(look_up, error)
            return
        asked = command("GET", account_name(look_up.record.account))
        self._link.send(asked, partial(self._account_came, look_up))

    def _account_came(self, look_up: _LookUp, reply: object) -> None:
        if not self._is_usable(look_up, reply):
            return
        assert look_up.record is not None
        # An account that nobody has set up has no services enabled.
        account = Account(look_up.record.account)
        if isinstance(reply, bytes):
            try:
                account = read_account(account.name, reply)
            except CorruptRecord as error:
                self._give_up(look_up, error)
                return
        identity = Identity(look_up.record, account)
        self._identities.keep(identity)
        self._finish(look_up, identity)

    def _is_usable(self, look_up: _LookUp, reply: object) -> bool:
        """A reply that is an error ends the look-up, one that was overtaken begins it again."""
        if reply is not None and not isinstance(reply, bytes):
            self._finish(look_up, Absent.UNAVAILABLE)
            return False
        if look_up.stale:
            self._ask(look_up)
            return False
        return True

    def _give_up(self, look_up: _LookUp, error: CorruptRecord) -> None:
        _log.error("%s", error)
        self._finish(look_up, Absent.UNAVAILABLE)

    def _finish(self, look_up: _LookUp, answer: Identity | Absent) -> None:
        del self._look_ups[look_up.key_id]
        for done in look_up.waiting:
            done(answer)

    # -- changes -----------------------------------------------------------------------------------

    def _pushed(self, message: Sequence[object]) -> None:
        """Redis says what changed: [b"invalidate", names], or None for names: everything."""
        if message[0] != b"invalidate":
            return
        names = message[1]
        if names is None:
            self._forget_all()
            return
        assert isinstance(names, list)
        for name in names:
            if (key_id := subject_of(name, KEY_PREFIX)) is not None:
                self._key_changed(key_id)
            elif (account := subject_of(name, ACCOUNT_PREFIX)) is not None:
                self._account_changed(account)

    def _key_changed(self, key_id: str) -> None:
        self._identities.forget_key(key_id)
        if (look_up := self._look_ups.get(key_id)) is not None:
            look_up.stale = True

    def _account_changed(self, name: str) -> None:
        self._identities.forget_account(name)
        for look_up in self._look_ups.values():
            if look_up.record is not None and look_up.record.account == name:
                look_up.stale = True

    def _forget_all(self) -> None:
        self._identities.forget_all()
        for look_up in self._look_ups.values():
            look_up.stale = True

    # -- the connection ----------------------------------------------------------------------------

    def _went_up(self) -> None:
        """Changes are heard of from here on; what was read before may have changed unheard."""
        self._cancel_timers()
        self._forget_all()
        self._beat()

    def _went_down(self, _: StoreDown) -> None:
        self._cancel_timers()
        loop = asyncio.get_running_loop()
        self._forgetting = loop.call_later(self._keep_s, self._identities.forget_all)

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(self._heartbeat_s, self._beat)
        self._link.send(_PING, _ignore)
        self._beats += 1
        if self._beats % _BEATS_A_FLUSH == 0:
            self._note_use()

    def _note_use(self) -> None:
        used, self._used = list(self._used), set()
        now = str(self._now_us())
        for start in range(0, len(used), _USED_BATCH):
            pairs = [word for key_id in used[start : start + _USED_BATCH] for word in (key_id, now)]
            self._link.send(command("HSET", USED, *pairs), _ignore)

    def _cancel_timers(self) -> None:
        for timer in (self._heartbeat, self._forgetting):
            if timer is not None:
                timer.cancel()
        self._heartbeat = self._forgetting = None


def _ignore(_: object) -> None: ...
