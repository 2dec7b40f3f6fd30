"""What a worker remembers of keys: bounded, and exact about what has to be forgotten.

Of too many keys one goes that was not asked for lately. Which that is, is looked for when one has
to go: to keep them in the order of their use would touch the memory of three for each request.

Plain memory without any I/O; `directory` fills it and is told of changes. Of ids that give no
identity it is remembered for a while why: no key has them, or their record cannot be read.

What may have changed unheard is in doubt: it is not known any more and has to be read again. Where
that cannot be done in time it is the last word about its key, until a moment that is set with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.domain.keys import Account
from gateway.domain.ports import Absent, Identity

#: An identity with a few grants takes 2 to 4 KB.
CAPACITY: Final = 100_000
#: Where so many in turn were asked for lately, the next one goes all the same.
_MOST_SPARED: Final = 100
UNKNOWN_CAPACITY: Final = 10_000
#: The store tells when an id comes to exist; this only bounds what a lost word can do.
UNKNOWN_S: Final = 5.0
#: So long a record that cannot be read is not read again: to find that out may take a thousand
#: times as long as a request does. An account's record may be the cause, of whose change no word
#: comes here.
UNREADABLE_S: Final = 1.0


class Identities:
    """Identities by key id, those not used lately dropped first; and ids that have none.

    clock: seconds of any beginning, by which all times here are told
    """

    def __init__(
        self,
        clock: Callable[[], float],
        capacity: int = CAPACITY,
        unknown_capacity: int = UNKNOWN_CAPACITY,
        unknown_s: float = UNKNOWN_S,
    ) -> None:
        self._clock = clock
        self._capacity = capacity
        self._unknown_capacity = unknown_capacity
        self._unknown_s = unknown_s
        self._known: OrderedDict[str, Identity] = OrderedDict()
        self._doubted: dict[str, tuple[Identity, float]] = {}
        #: Why an id has no identity, and until when that is gone by.
        self._absent: OrderedDict[str, tuple[Absent, float]] = OrderedDict()
        self._ids_of: dict[str, set[str]] = {}
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key_id: str) -> Identity | Absent | None:
        """What is remembered of this id: an identity, why it has none, or None: nothing."""
        identity = self._known.get(key_id)
        if identity is not None:
            identity.lately = True
            return identity
        absent = self._absent.get(key_id)
        if absent is None:
            return None
        why, until = absent
        if self._clock() < until:
            return why
        del self._absent[key_id]
        return None

    def account(self, name: str) -> Account | None:
        """An account that is remembered with a key of it; None: it has to be read."""
        return self._accounts.get(name)

    def last_word(self, key_id: str) -> Identity | None:
        """What is in doubt of this id, and may still be gone by."""
        identity, until = self._doubted.get(key_id, (None, 0.0))
        return identity if self._clock() < until else None

    def keep(self, identity: Identity) -> None:
        """Remember an identity in place of whatever is known of its id."""
        key_id = identity.record.id
        self.forget_key(key_id)
        self._known[key_id] = identity
        name = identity.account.name
        self._ids_of.setdefault(name, set()).add(key_id)
        self._accounts[name] = identity.account
        if len(self._known) > self._capacity:
            self.forget_key(self._least_lately())

    def _least_lately(self) -> str:
        """Whom to forget: the longest known of those not asked for since this last came by."""
        for _ in range(_MOST_SPARED):
            key_id, identity = next(iter(self._known.items()))
            if not identity.lately:
                break
            identity.lately = False
            self._known.move_to_end(key_id)
        return next(iter(self._known))

    def keep_unknown(self, key_id: str) -> None:
        """Remember for a while that no key has this id."""
        self._keep_absent(key_id, Absent.UNKNOWN, self._unknown_s)

    def keep_unreadable(self, key_id: str) -> None:
        """Remember for a moment that the key's record, or its account's, cannot be read."""
        self._keep_absent(key_id, Absent.UNAVAILABLE, UNREADABLE_S)

    def _keep_absent(self, key_id: str, why: Absent, for_s: float) -> None:
        self.forget_key(key_id)
        self._absent[key_id] = why, self._clock() + for_s
        if len(self._absent) > self._unknown_capacity:
            self._absent.popitem(last=False)

    def forget_key(self, key_id: str) -> None:
        """The key was made, changed or removed."""
        self._absent.pop(key_id, None)
        identity = self._known.pop(key_id, None)
        if identity is None:
            identity, _ = self._doubted.pop(key_id, (None, 0.0))
        if identity is None:
            return
        identity.current = False
        name = identity.account.name
        ids = self._ids_of[name]
        ids.discard(key_id)
        if not ids:
            del self._ids_of[name]
            self._accounts.pop(name, None)

    def forget_account(self, name: str) -> None:
        """The account was changed or removed: none of its keys is what it was."""
        self._accounts.pop(name, None)
        for key_id in tuple(self._ids_of.get(name, ())):
            self.forget_key(key_id)

    def doubt_all(self, until: float) -> None:
        """Changes may have gone unheard; what was known may be gone by until then."""
        for key_id, identity in self._known.items():
            identity.current = False
            self._doubted[key_id] = identity, until
        self._known.clear()
        self._absent.clear()
        self._accounts.clear()
        for key_id in list(self._doubted)[: -self._capacity]:
            self.forget_key(key_id)

    def forget_doubted(self) -> None:
        """Whatever has not been read again by now is not relied on."""
        for key_id in tuple(self._doubted):
            self.forget_key(key_id)

    def forget_all(self) -> None:
        """Nothing can be relied on any more."""
        for identity in self._known.values():
            identity.current = False
        self._known.clear()
        self._doubted.clear()
        self._absent.clear()
        self._ids_of.clear()
        self._accounts.clear()
