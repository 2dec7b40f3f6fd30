"""Looks keys up: reads the key's record and then its account's, for all requests that wait for it.

Each record is read by a separate command, and the commands of one turn of the event loop are sent
together. One MGET for all would cost the store a little less, but does not distinguish a value of
another type from a missing one, has no bound on the size of its reply, and in a cluster fails as a
whole while some of its names move from one node to another.

Nothing is read twice: look-ups of one key are merged, keys of one account share its reply, and an
account that is cached with another key is not read again.

A reply is used only if no push about a change of the record has arrived since; otherwise the
look-up starts again. As pushes and replies arrive over one connection, a cached identity was
correct at one moment for key and account together, and each later change will be pushed.

A request waits as long as for a decision. That timeout is for the store, not for this process: a
pause of this process (garbage collection, a busy machine) may use up the time of the first reply,
which has then arrived but is not read. So the second reply has at least half of the timeout,
however long the first took. After the timeout the look-up continues, so that keys from a slow store
are cached as well.

A record that cannot be read fails only the look-ups of its key, or of its account's keys.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Final

import hiredis

from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.ports import CorruptRecord
from gateway.stores.keys.cache import IdentityCache
from gateway.stores.keys.records import UnreadableLog, read_account, read_record, value_range
from gateway.stores.names import account_name, key_name
from gateway.stores.redis.connection import command, grace_s

Done = Callable[[Identity | Absent], None]
#: Sends a command and calls back with its reply, or StoreDown.
Send = Callable[[bytes, Callable[[object], None]], None]


class Wait(Enum):
    """How long a look-up has taken."""

    IN_TIME = auto()
    GRACE = auto()  # the timeout is over, and the grace period has begun: see `grace_s`
    OVERDUE = auto()  # no request waits for it any longer


@dataclass(slots=True, eq=False)
class _LookUp:
    """The look-up of one key, and the callbacks that wait for it.

    due_s: when `wait` moves to its next state
    stale: a record that was read has changed since
    """

    key_id: str
    waiting: list[Done]
    due_s: float
    record: KeyRecord | None = None
    wait: Wait = Wait.IN_TIME
    stale: bool = False


class LookUps:
    """The look-ups in progress. Results are cached in `identities`.

    timeout_s: how long a request waits; called at each use
    failed:    called with each reply that is an error, or StoreDown
    """

    def __init__(
        self,
        send: Send,
        identities: IdentityCache,
        *,
        timeout_s: Callable[[], float],
        failed: Callable[[object], None],
    ) -> None:
        self._send = send
        self._identities = identities
        self._timeout_s = timeout_s
        self._failed = failed
        self._under_way: dict[str, _LookUp] = {}
        #: By account name: the look-ups that wait for its record.
        self._accounts: dict[str, list[_LookUp]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unreadable = UnreadableLog(time.monotonic)

    def ask(self, key_id: str, done: Done) -> None:
        """Look up a key that is not cached; `done` is called once."""
        look_up = self._under_way.get(key_id)
        if look_up is None:
            due_s = self._schedule(self._timeout_s())
            look_up = self._under_way[key_id] = _LookUp(key_id, [done], due_s)
            self._begin(look_up)
        elif look_up.wait is Wait.OVERDUE:
            done(self._stale_answer(key_id))
        else:
            look_up.waiting.append(done)

    def close(self) -> None:
        """Cancel the timer, once the connection has ended and every `done` has been called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- changes -----------------------------------------------------------------------------------

    def key_changed(self, key_id: str) -> None:
        """A record of this key that is being read is out of date."""
        if (look_up := self._under_way.get(key_id)) is not None:
            look_up.stale = True

    def account_changed(self, name: str) -> None:
        """A record of this account that is being read is out of date."""
        self._accounts.pop(name, None)
        for look_up in self._under_way.values():
            if look_up.record is not None and look_up.record.account == name:
                look_up.stale = True

    def all_changed(self) -> None:
        """All records that are being read are out of date."""
        self._accounts.clear()
        for look_up in self._under_way.values():
            look_up.stale = True

    # -- the two steps -----------------------------------------------------------------------------

    def _begin(self, look_up: _LookUp) -> None:
        look_up.stale = False
        look_up.record = None
        encoded = command(*value_range(key_name(look_up.key_id)))
        self._send(encoded, partial(self._record_came, look_up))

    def _record_came(self, look_up: _LookUp, reply: object) -> None:
        if _is_of_another_type(reply):
            reply = _OF_ANOTHER_TYPE
        if not isinstance(reply, bytes):
            self._finish(look_up, self._stale_answer(look_up.key_id))
            self._failed(reply)
        elif look_up.stale:
            self._begin(look_up)
        elif not reply:
            self._identities.keep_unknown(look_up.key_id)
            self._finish(look_up, Absent.UNKNOWN)
        else:
            try:
                look_up.record = read_record(look_up.key_id, reply)
            except CorruptRecord as error:
                self._fail(error, look_up)
            else:
                self._find_account(look_up, look_up.record.account)

    def _find_account(self, look_up: _LookUp, name: str) -> None:
        account = self._identities.account(name)
        if account is not None:
            self._resolve(look_up, account)
            return
        # A pause of this process during the first step is not the store's delay.
        look_up.due_s = max(look_up.due_s, self._schedule(self._timeout_s() / 2))
        if look_up.wait is Wait.GRACE:
            look_up.wait = Wait.IN_TIME
        waiting_for_account = self._accounts.get(name)
        if waiting_for_account is not None:
            waiting_for_account.append(look_up)
            return
        waiting_for_account = self._accounts[name] = [look_up]
        encoded = command(*value_range(account_name(name)))
        self._send(encoded, partial(self._account_came, name, waiting_for_account))

    def _account_came(self, name: str, waiting_for_account: list[_LookUp], reply: object) -> None:
        if self._accounts.get(name) is waiting_for_account:
            del self._accounts[name]
        if _is_of_another_type(reply):
            reply = _OF_ANOTHER_TYPE
        if not isinstance(reply, bytes):
            for look_up in waiting_for_account:
                self._finish(look_up, self._stale_answer(look_up.key_id))
            self._failed(reply)
            return
        current = [look_up for look_up in waiting_for_account if not look_up.stale]
        for look_up in waiting_for_account:
            if look_up.stale:
                self._begin(look_up)
        # An account without a record has no services enabled, and no plan.
        account = Account(name)
        if reply:
            try:
                account = read_account(name, reply)
            except CorruptRecord as error:
                self._fail(error, *current)
                return
        for look_up in current:
            self._resolve(look_up, account)

    def _resolve(self, look_up: _LookUp, account: Account) -> None:
        assert look_up.record is not None
        identity = Identity(with_account(look_up.record, account), account)
        self._identities.keep(identity)
        self._finish(look_up, identity)

    def _fail(self, error: CorruptRecord, *look_ups: _LookUp) -> None:
        if look_ups:
            self._unreadable.note(error)
        for look_up in look_ups:
            self._identities.keep_unreadable(look_up.key_id)
            self._finish(look_up, Absent.UNAVAILABLE)

    # -- the end of one ----------------------------------------------------------------------------

    def _finish(self, look_up: _LookUp, answer: Identity | Absent) -> None:
        del self._under_way[look_up.key_id]
        self._deliver(look_up, answer)

    def _deliver(self, look_up: _LookUp, answer: Identity | Absent) -> None:
        """Call the waiting callbacks; one that fails does not affect the others."""
        waiting, look_up.waiting = look_up.waiting, []
        for done in waiting:
            try:
                done(answer)
            except Exception as error:
                report = {"message": "a callback of the directory failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)

    def _stale_answer(self, key_id: str) -> Identity | Absent:
        """The answer where the store did not answer."""
        return self._identities.stale_identity(key_id) or Absent.UNAVAILABLE

    # -- the timer ---------------------------------------------------------------------------------

    def _schedule(self, seconds: float) -> float:
        """Start the timer if it is not running; returns the time after this many seconds."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._check)
        return due_s

    def _check(self) -> None:
        """Move look-ups that are due to their next state: one timer for all look-ups."""
        loop = asyncio.get_running_loop()
        now_s, timeout_s = loop.time(), self._timeout_s()
        next_s, overdue = inf, list[_LookUp]()
        for look_up in self._under_way.values():
            if look_up.wait is Wait.OVERDUE:
                continue
            if look_up.due_s <= now_s:
                if look_up.wait is Wait.GRACE:
                    overdue.append(look_up)
                    continue
                look_up.wait = Wait.GRACE
                look_up.due_s = now_s + grace_s(now_s - look_up.due_s, timeout_s)
            next_s = min(next_s, look_up.due_s)
        self._timer = loop.call_at(next_s, self._check) if next_s < inf else None
        for look_up in overdue:
            look_up.wait = Wait.OVERDUE
            self._deliver(look_up, self._stale_answer(look_up.key_id))


#: Replaces a value that is not a string: a record that cannot be read.
_OF_ANOTHER_TYPE: Final = b"of another type"


def _is_of_another_type(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("WRONGTYPE")
