"""What a worker knows of keys: a memory that Redis keeps true.

A key is read once and remembered. Redis is asked (client tracking, broadcast mode, RESP3) to
name every record that anybody changes, on the very connection that the look-ups use, and what it
names is forgotten. One connection puts all in order: whatever was read before a change has its
reply before the word of the change. How keys are looked up is in `lookups`.

While the connection is lost, nobody hears of changes. Known keys stay good for a settable time,
unknown ones cannot be looked up. With the next connection all are in doubt: each is read again
before it is relied on, and where the store is too slow for that, the last word counts until that
time is over. That a connection is dead shows by a heartbeat that is not answered in time. With each
heartbeat the store tells its time, by which keys expire (`clock`): as replies come in order, it is
known before the first key is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast
from urllib.parse import quote

import hiredis

from gateway.domain.counters import PREFIX
from gateway.domain.policy import StoreSettings
from gateway.domain.ports import Absent, Identity, StoreDown
from gateway.stores.clock import TIME, StoreClock
from gateway.stores.connect import StoreAddress
from gateway.stores.identities import Identities
from gateway.stores.lookups import Done, LookUps
from gateway.stores.records import ACCOUNT_PREFIX, KEY_PREFIX, KEYS_TAG, USED, subject_of
from gateway.stores.wire import StoreLink, command

#: Followed by the name of a count that was reset; there for a moment, for every worker to hear of.
RESET_PREFIX: Final = KEYS_TAG + "reset:"
#: Changes nothing, as there never is such a name. But only a master answers it, and in a cluster
#: only the one that owns the slot of the keys: what others hold may long be out of date.
HEARTBEAT: Final = command("DEL", KEYS_TAG + "none")
_TRACK: Final = command(
    *("CLIENT", "TRACKING", "ON", "BCAST"),
    *("PREFIX", KEY_PREFIX, "PREFIX", ACCOUNT_PREFIX, "PREFIX", RESET_PREFIX),
)
HEARTBEAT_S: Final = 0.25
DEAD_S: Final = 0.5
#: Last use is noted every so many heartbeats, of so many keys at most, so many in a command.
_BEATS_A_FLUSH: Final = 4
_MOST_USED: Final = 10_000
#: Of a key in use it is noted once in so many heartbeats, that is once a minute.
_QUIET_BEATS: Final = 240
_USED_BATCH: Final = 500


def reset_name(count: str) -> str:
    """The name that tells of the reset of a count."""
    return RESET_PREFIX + quote(count, safe="")


class Directory:
    """domain.ports.KeyDirectory over a Redis. Between `start` and `stop` it keeps a connection.

    settings:    asked each time: how long a request waits for a look-up, and how long known keys
                 stay good after a loss
    clock:       is kept by the heartbeat
    heartbeat_s: how often the connection is tried
    dead_s:      an answer that takes longer means that the connection is dead; a change is heard
                 of within heartbeat_s + dead_s and a new connection, at the worst
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        settings: Callable[[], StoreSettings] = StoreSettings,
        heartbeat_s: float = HEARTBEAT_S,
        dead_s: float = DEAD_S,
        identities: Identities | None = None,
        clock: StoreClock | None = None,
        link: Callable[..., StoreLink] = StoreLink,
    ) -> None:
        self._link = link(
            address, timeout_s=dead_s, on_push=self._pushed, setup=(_TRACK, HEARTBEAT)
        )
        #: Listeners, as a link's.
        self.on_up, self.on_down = self._link.on_up, self._link.on_down
        self.on_up.append(self._went_up)
        self.on_down.append(self._went_down)
        #: Listeners, called when the store says that it has been emptied.
        self.on_emptied: list[Callable[[], None]] = []
        #: Listeners, called with the name of a count that somebody has reset.
        self.on_reset: list[Callable[[str], None]] = []
        self._settings = settings
        self._heartbeat_s = heartbeat_s
        self.clock = StoreClock() if clock is None else clock
        self._identities = Identities(time.monotonic) if identities is None else identities
        self._look_ups = LookUps(
            self._link.send,
            self._identities,
            timeout_s=lambda: settings().timeout_s,
            failed=self._heard,
        )
        self._used: list[str] = []
        self._beats = 0
        self._good_until = 0.0
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

    def send(self, encoded: bytes, reply_came: Callable[[object], None]) -> None:
        """Send one command of somebody else's, about what lies beside the records."""
        self._link.send(encoded, reply_came)

    async def ask(self, *words: bytes | str | int) -> object:
        """The same, awaited. Raises StoreDown, also where the store answers with an error."""
        return await self._link.ask(*words)

    def give_up(self, reason: str) -> None:
        """Take the store for lost and connect anew: it is another server now."""
        self._link.give_up(reason)

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
            self._look_ups.close()

    # -- domain.ports.KeyDirectory -----------------------------------------------------------------

    def known(self, key_id: str) -> Identity | Absent | None:
        """What is remembered: an identity, why there is none, or None: look it up."""
        return self._identities.find(key_id)

    def look_up(self, key_id: str, done: Done) -> None:
        """Ask the store; `done` is called once. Look-ups of one id at one time are one trip."""
        if (found := self._identities.find(key_id)) is not None:
            done(found)
        else:
            self._look_ups.ask(key_id, done)

    def touch(self, identity: Identity) -> None:
        """The key was used just now; the store hears of it within a second or so, or never.

        What it has heard of within a minute it is not told again.
        """
        if self._beats >= identity.quiet_until and len(self._used) < _MOST_USED:
            identity.quiet_until = self._beats + _QUIET_BEATS
            self._used.append(identity.record.id)

    # -- changes -----------------------------------------------------------------------------------

    def _pushed(self, message: Sequence[object]) -> None:
        """Redis says what changed: [b"invalidate", names], or None for names: everything."""
        match message:
            case [b"invalidate", None]:
                self._emptied()
            case [b"invalidate", [*names]] if all(isinstance(name, bytes) for name in names):
                for name in cast("list[bytes]", names):
                    self._changed(name)
            case [b"invalidate", *_]:
                # A change that nobody can tell which: with the next connection all are read again.
                self._link.give_up("the store names what changed in a form that cannot be read")

    def _emptied(self) -> None:
        self._identities.forget_all()
        self._look_ups.all_changed()
        for listener in self.on_emptied:
            listener()

    def _changed(self, name: bytes) -> None:
        if (key_id := subject_of(name, KEY_PREFIX)) is not None:
            self._identities.forget_key(key_id)
            self._look_ups.key_changed(key_id)
        elif (account := subject_of(name, ACCOUNT_PREFIX)) is not None:
            self._identities.forget_account(account)
            self._look_ups.account_changed(account)
        elif (count := subject_of(name, RESET_PREFIX)) is not None and count.startswith(PREFIX):
            for told in self.on_reset:
                told(count)

    # -- the connection ----------------------------------------------------------------------------

    def _went_up(self) -> None:
        """Changes are heard of from here on; what was read before may have changed unheard."""
        self._identities.doubt_all(self._good_until)
        self._look_ups.all_changed()
        self._beat()

    def _went_down(self, _: StoreDown) -> None:
        self._cancel_timers()
        keep_s = self._settings().keep_keys_s
        self._good_until = time.monotonic() + keep_s
        self._forgetting = asyncio.get_running_loop().call_later(keep_s, self._forget)

    def _forget(self) -> None:
        """The time is over for which keys are known without the store."""
        if self._link.is_up:
            self._identities.forget_doubted()
        else:
            self._identities.forget_all()

    def _heard(self, reply: object) -> None:
        """A server that answers with an error is no good for look-ups, whatever it is good for.

        Nor is one whose answers are of another kind than what was asked for.
        """
        if isinstance(reply, hiredis.ReplyError):
            self._link.give_up(f"the store cannot be read: {reply}")
        elif not isinstance(reply, StoreDown):
            self._link.give_up(f"the store cannot be read: it sent {type(reply).__name__}")

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(self._heartbeat_s, self._beat)
        self._link.send(HEARTBEAT, self._beat_came)
        self._link.send(TIME, partial(self._time_came, self.clock.steady_us()))
        self._beats += 1
        if self._beats % _BEATS_A_FLUSH == 0:
            self._note_use()

    def _beat_came(self, reply: object) -> None:
        if not isinstance(reply, int):
            self._heard(reply)

    def _time_came(self, asked_us: int, reply: object) -> None:
        if not self.clock.heard(asked_us, reply):
            self._heard(reply)

    def _note_use(self) -> None:
        used, self._used = self._used, []
        now = str(self.clock.now_us())
        for start in range(0, len(used), _USED_BATCH):
            pairs = [word for key_id in used[start : start + _USED_BATCH] for word in (key_id, now)]
            self._link.send(command("HSET", USED, *pairs), _ignore)

    def _cancel_timers(self) -> None:
        for timer in (self._heartbeat, self._forgetting):
            if timer is not None:
                timer.cancel()
        self._heartbeat = self._forgetting = None


def _ignore(_: object) -> None: ...
