"""Looking keys up: the key and then its account, for all who wait to know.

Each is a command of its own, and what a turn of the event loop asks leaves together. One MGET for
all would cost the store a little less, but could not tell a value of another type from none, has no
bound on the size of what it brings, and in a cluster would fail as a whole while the names in it
are on their way from one node to another.

Nothing is asked twice: look-ups of one key are one, keys of one account share its answer, and an
account that is remembered with another key is not read again.

What was read is taken only if no word of a change of it has come since; else the look-up begins
again. As words and replies come over one connection, what is kept was true at one moment for key
and account together, and any later change is still to be heard of.

Nobody waits longer than for a decision. That bound is about the store, not about this process: a
pause of ours (garbage collection, a busy machine) may use up the time of the first answer, which
then lies here unread. So the second has at least half of the time, whatever the first took. The
look-up itself goes on, so that a slow store still makes keys known.

A record that cannot be read, its own or its account's, costs a key its answers and nobody else's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import hiredis

from gateway.domain.keys import Account, KeyRecord, settled
from gateway.domain.ports import Absent, CorruptRecord, Identity
from gateway.stores.identities import Identities
from gateway.stores.records import (
    account_name,
    key_name,
    read_account,
    read_record,
    value_range,
)
from gateway.stores.unreadable import UnreadableLog
from gateway.stores.wire import command, grace_s

Done = Callable[[Identity | Absent], None]
#: Sends a command and hands over its reply, or StoreDown.
Send = Callable[[bytes, Callable[[object], None]], None]


@dataclass(slots=True, eq=False)
class _LookUp:
    """One key, and everybody who waits for it.

    due_s:   until when they wait; after that there is a moment of grace, once an answer
    graced:  the moment of grace has begun
    overdue: nobody waits any more
    stale:   what was read so far has been changed since
    """

    key_id: str
    waiting: list[Done]
    due_s: float
    record: KeyRecord | None = None
    graced: bool = False
    overdue: bool = False
    stale: bool = False


class LookUps:
    """Those under way. What they find is kept in `identities`.

    timeout_s: asked each time: how long anybody waits
    failed:    told of each reply that is an error, or StoreDown
    """

    def __init__(
        self,
        send: Send,
        identities: Identities,
        *,
        timeout_s: Callable[[], float],
        failed: Callable[[object], None],
    ) -> None:
        self._send = send
        self._identities = identities
        self._timeout_s = timeout_s
        self._failed = failed
        self._under_way: dict[str, _LookUp] = {}
        #: Who waits for which account, of those that are being read.
        self._accounts: dict[str, list[_LookUp]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unreadable = UnreadableLog(time.monotonic)

    def ask(self, key_id: str, done: Done) -> None:
        """Find out about a key that is not known; `done` is called once."""
        look_up = self._under_way.get(key_id)
        if look_up is None:
            due_s = self._watch(self._timeout_s())
            look_up = self._under_way[key_id] = _LookUp(key_id, [done], due_s)
            self._begin(look_up)
        elif look_up.overdue:
            done(self._last_word(key_id))
        else:
            look_up.waiting.append(done)

    def close(self) -> None:
        """Stop the clock, once the connection has ended and everybody has been told so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- changes -----------------------------------------------------------------------------------

    def key_changed(self, key_id: str) -> None:
        """What is being read of this key is out of date."""
        if (look_up := self._under_way.get(key_id)) is not None:
            look_up.stale = True

    def account_changed(self, name: str) -> None:
        """What is being read of this account is out of date."""
        self._accounts.pop(name, None)
        for look_up in self._under_way.values():
            if look_up.record is not None and look_up.record.account == name:
                look_up.stale = True

    def all_changed(self) -> None:
        """Whatever is being read is out of date."""
        self._accounts.clear()
        for look_up in self._under_way.values():
            look_up.stale = True

    # -- the two steps -----------------------------------------------------------------------------

    def _begin(self, look_up: _LookUp) -> None:
        look_up.stale = False
        look_up.record = None
        asked = command(*value_range(key_name(look_up.key_id)))
        self._send(asked, partial(self._record_came, look_up))

    def _record_came(self, look_up: _LookUp, reply: object) -> None:
        if _is_of_another_type(reply):
            reply = _OF_ANOTHER_TYPE
        if not isinstance(reply, bytes):
            self._finish(look_up, self._last_word(look_up.key_id))
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
                self._give_up(error, look_up)
            else:
                self._find_account(look_up, look_up.record.account)

    def _find_account(self, look_up: _LookUp, name: str) -> None:
        account = self._identities.account(name)
        if account is not None:
            self._learn(look_up, account)
            return
        # A pause of this process during the first step is not the store's.
        look_up.due_s = max(look_up.due_s, self._watch(self._timeout_s() / 2))
        look_up.graced = False
        askers = self._accounts.get(name)
        if askers is not None:
            askers.append(look_up)
            return
        askers = self._accounts[name] = [look_up]
        asked = command(*value_range(account_name(name)))
        self._send(asked, partial(self._account_came, name, askers))

    def _account_came(self, name: str, askers: list[_LookUp], reply: object) -> None:
        if self._accounts.get(name) is askers:
            del self._accounts[name]
        if _is_of_another_type(reply):
            reply = _OF_ANOTHER_TYPE
        if not isinstance(reply, bytes):
            for look_up in askers:
                self._finish(look_up, self._last_word(look_up.key_id))
            self._failed(reply)
            return
        current = [look_up for look_up in askers if not look_up.stale]
        for look_up in askers:
            if look_up.stale:
                self._begin(look_up)
        # An account that nobody has set up has no services enabled, and no plan.
        account = Account(name)
        if reply:
            try:
                account = read_account(name, reply)
            except CorruptRecord as error:
                self._give_up(error, *current)
                return
        for look_up in current:
            self._learn(look_up, account)

    def _learn(self, look_up: _LookUp, account: Account) -> None:
        assert look_up.record is not None
        identity = Identity(settled(look_up.record, account), account)
        self._identities.keep(identity)
        self._finish(look_up, identity)

    def _give_up(self, error: CorruptRecord, *look_ups: _LookUp) -> None:
        if look_ups:
            self._unreadable.note(error)
        for look_up in look_ups:
            self._identities.keep_unreadable(look_up.key_id)
            self._finish(look_up, Absent.UNAVAILABLE)

    # -- the end of one ----------------------------------------------------------------------------

    def _finish(self, look_up: _LookUp, answer: Identity | Absent) -> None:
        del self._under_way[look_up.key_id]
        self._tell(look_up, answer)

    def _tell(self, look_up: _LookUp, answer: Identity | Absent) -> None:
        """One asker's mistake must not cost the others their answers."""
        waiting, look_up.waiting = look_up.waiting, []
        for done in waiting:
            try:
                done(answer)
            except Exception as error:
                report = {"message": "an asker of the directory failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)

    def _last_word(self, key_id: str) -> Identity | Absent:
        """What is answered where the store does not."""
        return self._identities.last_word(key_id) or Absent.UNAVAILABLE

    # -- the clock ---------------------------------------------------------------------------------

    def _watch(self, seconds: float) -> float:
        """See to it that somebody looks at the clock in so many seconds; when that is."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._check)
        return due_s

    def _check(self) -> None:
        """One timer serves all: it comes by when the first is due, then for the next."""
        loop = asyncio.get_running_loop()
        now_s, timeout_s = loop.time(), self._timeout_s()
        next_s, overdue = inf, list[_LookUp]()
        for look_up in self._under_way.values():
            if look_up.overdue:
                continue
            if look_up.due_s <= now_s:
                if look_up.graced:
                    overdue.append(look_up)
                    continue
                look_up.graced = True
                look_up.due_s = now_s + grace_s(now_s - look_up.due_s, timeout_s)
            next_s = min(next_s, look_up.due_s)
        self._timer = loop.call_at(next_s, self._check) if next_s < inf else None
        for look_up in overdue:
            look_up.overdue = True
            self._tell(look_up, self._last_word(look_up.key_id))


#: Stands for a value that is no string: read as a record, it is none.
_OF_ANOTHER_TYPE: Final = b"of another type"


def _is_of_another_type(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("WRONGTYPE")
